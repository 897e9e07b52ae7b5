"""A value in SI and its unit  ->  three figures and a unit that people read; a kernel's name likewise.

Every number in a sentence, a table or a picture is written here; nothing is ever computed from the
text.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profkit.units import Factor, KernelName, Seconds, Share, TextOrEmpty


NOT_COLLECTED = "not collected"
SMALLEST = 1e-6  # from which on a value is written without an exponent
OUT_OF_RANGE = 1.03  # a share above 1 by more than rounding: passes that did not see the same
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_SMALL = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_NOUNS = {
    **{"byte": "B", "byte/s": "B/s", "op": "op", "op/s": "op/s", "FLOP/s": "FLOP/s"},
    **{"Hz": "Hz", "cycle": "cycles"},
}
_BEFORE_UNIT = re.compile(
    r"(?<=\d) (?=(?:%|[mnµ]?s|[TGMk]?(?:B|op|Hz)(?:/s)?|[TGMk]|cycles?)(?!\w))"
)

_LENGTH = re.compile(r"\d{1,4}")
# A tag of the ABI tells apart what has one name in a source; Numba has a hash of its options there.
_TAG = re.compile(r"\[abi:[^\]]*\]")
_SPECIAL = re.compile(r"L[a-z](\d+)E|[ST][\dA-Z]*_")  # a number, or a name that stood before


def format_value_with_unit(value: float | None, unit: str) -> str:
    """Return a value in SI with its unit (of the catalogue): 3.85e-05 s is "38.5 µs"."""
    if value is None or not isfinite(value):
        return NOT_COLLECTED
    if unit == "share":
        return format_share(value)
    if unit == "s":
        return format_seconds(value)
    noun = _NOUNS.get(unit, "")
    if unit == "count" and value == int(value) and abs(value) < 1e5:
        return f"{value:,.0f}"
    size, prefix = _choose_unit(value, _PREFIXES, (1.0, ""))
    return f"{format_three_figures(value / size)} {prefix}{noun}".rstrip()


def _choose_unit(
    value: float, units: Iterable[tuple[float, str]], otherwise: tuple[float, str]
) -> tuple[float, str]:
    """Return the first unit, with its size, that a value has at least one of once it is rounded."""
    for size, name in units:
        if abs(value) >= 0.9995 * size:
            return size, name
    return otherwise


def format_values_with_unit(values: Sequence[float | None], unit: str) -> list[str]:
    """Return values that are read beside one another, in one form: 65.5 k and 131 k, not 65,536.

    A count stands in full where all of them do.
    """
    known = [value for value in values if value is not None and isfinite(value)]
    if unit != "count" or all(abs(value) < 1e5 for value in known):
        return [format_value_with_unit(value, unit) for value in values]
    return [_abbreviate_count(value) for value in values]


def _abbreviate_count(value: float | None) -> str:
    if value is not None and abs(value) < 999.5:
        return format_value_with_unit(value, "count")
    return format_value_with_unit(value, "")


def format_seconds(value: Seconds | None) -> str:
    """Return a duration: 38.5 µs."""
    if value is None or not isfinite(value):
        return NOT_COLLECTED
    size, noun = _choose_unit(value, _SMALL, _SMALL[-1])
    return f"{format_three_figures(value / size)} {noun}"


def format_three_figures(value: float) -> str:
    """Return three figures, no exponent: 1.85, 38.5, 385, 1,840, 8.00, 0.000289.

    What is smaller than any quantity that is printed in its unit has an exponent.
    """
    if value == 0:
        return "0"
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    if abs(value) < SMALLEST:
        return f"{value:.2e}"
    # Rounded first: 9.996 has its point where 10.0 has it.
    exponent = int(f"{value:.2e}".partition("e")[2])
    return f"{value:.{max(0, 2 - exponent)}f}"


def format_share(value: Share) -> str:
    """Return a fraction with three figures at most: 0.827 is "82.7 %"."""
    percent = 100 * value
    if abs(percent) >= 99.95 or percent == 0:
        return f"{percent:.0f} %"
    return f"{percent:.3g} %"


def format_percent(value: Share | None, decimals: int = 0) -> str:
    """Return a fraction as a percentage, with the blank that every unit has: 0.8 is "80 %"."""
    if value is None:
        return NOT_COLLECTED
    return f"{100 * value:.{decimals}f} %"


class _SentenceFormatter(string.Formatter):
    """What str.format does, with figures and times as tables have them, and a blank before each %."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "figures":
            return format_three_figures(value)
        if format_spec == "time":  # of milliseconds
            return format_seconds(value / 1e3)
        text = str(super().format_field(value, format_spec))
        if format_spec.endswith("%"):
            return f"{text.removesuffix('%')} %"
        return text


def fill_sentence(template: str, values: Mapping[str, Any]) -> str:
    """Return a sentence with its figures.

    "idle for {share:.0%} of it" is "idle for 80 % of it", {x:figures} three digits of a number, and
    {ms:time} a time in the unit that is read best.
    """
    return _SentenceFormatter().vformat(template, (), values)


def format_speedup(factor: Factor | None) -> TextOrEmpty:
    """Return a speed-up factor: 1.85x; "" where there is none."""
    if factor is None or not isfinite(factor):
        return ""
    return f"{format_three_figures(factor)}x"


def format_count_with_noun(number: float, noun: str, plural: str = "") -> str:
    """Return a count with its noun: 1 block, 1,320 blocks, 2 launches."""
    return f"{number:,.0f} {noun if number == 1 else plural or noun + 's'}"


def bind_units(text: str, blank: str = "\u00a0") -> str:
    """Return a sentence with `blank` between a number and its unit, for what wraps lines at blanks."""
    return _BEFORE_UNIT.sub(blank, text)


def remove_abi_tags(name: str) -> str:
    """Return a demangled name without the tags of the ABI: they stand in no source."""
    if "[abi:" not in name:
        return name
    return _TAG.sub("", name)


@lru_cache(maxsize=65536)
def make_kernel_name_readable(name: str) -> KernelName:
    """Return a mangled name as namespace::kernel<words of its arguments>; any other without tags."""
    if not name.startswith("_Z"):
        return remove_abi_tags(name)
    head: list[str] = []
    inside: list[str] = []
    if name[2:3] == "N":
        at = 3
    else:
        at = 2
    words = head
    while at < len(name):
        if name[at] == "B" and (length := _LENGTH.match(name, at + 1)):
            at = length.end() + int(length[0])  # a tag
            continue
        if length := _LENGTH.match(name, at):
            at = length.end() + int(length[0])
            word = name[length.end() : at]
            words.append("(anonymous namespace)" if word.startswith("_GLOBAL__N") else word)
            continue
        words = inside
        special = _SPECIAL.match(name, at)
        if special and special[1]:
            inside += [special[1]]
        if special:
            at = special.end()
        else:
            at = at + 1
    if head:
        return "::".join(head) + (f"<{' '.join(inside)}>" if inside else "")
    return name


def get_base_name_of_kernel(name: str) -> KernelName:
    """Return a kernel's own name, of a demangled or mangled one: no namespaces, no arguments.

    It is what ncu's --kernel-name-base function has.
    """
    depth = 0
    plain = []
    name = (
        make_kernel_name_readable(name).removeprefix("void ").replace("(anonymous namespace)", "_")
    )
    for c in name.replace("<unnamed>", "_"):
        depth += c in "<("
        if not depth:
            plain.append(c)
        depth -= c in ">)"
    return "".join(plain).rsplit("::", 1)[-1].strip().rsplit(" ", 1)[-1]
