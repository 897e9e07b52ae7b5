"""What is said of a rule, in itself or in rules/pages/<id>.md, and in measured.json  ->  WrittenPage.

A page holds what cannot be derived from the rule: what happens in the hardware, the smallest code that
does it and that does not, where the rule is wrong, and where NVIDIA writes of it. measured.json is
written by tools/explained.py out of the probes and what was recorded of them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from profkit.diagnosis.rule import LaunchRule
from profkit.errors import ProfkitError
from profkit.files import is_file
from profkit.model.launch import Threshold
from profkit.model.resources import BY_LIMITER

if TYPE_CHECKING:
    from profkit.units import GpuName, MarkdownText, MetricName, RuleName, UnitName


FOLDER = Path(__file__).parent / "rules" / "pages"
_RULES = "profkit.diagnosis.rules"
_CODE = re.compile(r"```(\w+)\n(.*?)```", re.S)


@dataclass(frozen=True)
class Snippet:
    """A piece of code that is shown."""

    language: str  # cuda or sh
    text: str


@dataclass(frozen=True, kw_only=True)
class WrittenPage:
    """What was written by hand of a rule, a word of the verdict, or a family of metrics."""

    hardware: str  # what happens, three sentences
    official: str  # address of NVIDIA's page on the subject
    # The smallest code that has a rule's cause; None for words, metrics.
    before: Snippet | None = None
    after: Snippet | None = None  # the same without it
    false_alarms: tuple[str, ...] = ()  # when it is said, or seems to be, and nothing need be done
    thresholds: tuple[str, ...] = ()  # what decides and is no Threshold, each with its reason


@dataclass(frozen=True)
class MeasuredPair:
    """A probe and its twin without the cause, timed in turns on one GPU."""

    probe: str
    title: str  # first line of its header
    relieves: str  # what the fixed copy does instead
    gain: float  # time of the probe over time of the twin


@dataclass(frozen=True)
class ProbeRange:
    """The lowest and the highest value of a metric over the probes, each with its probe."""

    low: tuple[str, float]
    high: tuple[str, float]


@dataclass(frozen=True)
class PageThreshold:
    """A number that decides: a constant's name, or a limiter; what it is; and why."""

    name: str
    value: str
    reason: str
    number: float | None = None  # the value itself; None of a limiter, which has several
    family: str = ""  # the file of rules that it is in


def list_thresholds_in_check(rule: LaunchRule) -> tuple[PageThreshold, ...]:
    """Return the thresholds that a rule's question names, in functions of the rules' files."""
    found: dict[str, PageThreshold] = {}
    _collect_thresholds(rule.check, found, set())
    return tuple(found.values())


def _collect_thresholds(
    function: Any, threshold_by_name: dict[str, PageThreshold], ids_of_functions_seen: set[int]
) -> None:
    function = getattr(function, "check", function)  # of a rule that another asks
    ours = isinstance(function, FunctionType) and function.__module__.startswith(_RULES)
    if not ours or id(function) in ids_of_functions_seen:
        return
    ids_of_functions_seen.add(id(function))
    for cell in function.__closure__ or ():
        inside = cell.cell_contents
        if isinstance(inside, str) and inside in BY_LIMITER:
            threshold_by_name.setdefault(inside, describe_peak_threshold(inside))
        _collect_thresholds(inside, threshold_by_name, ids_of_functions_seen)
    for name in function.__code__.co_names:
        used = function.__globals__.get(name)
        if isinstance(used, Threshold):
            family = function.__module__.rpartition(".")[2]
            decides = PageThreshold(name, f"{used:g}", used.reason, float(used), family)
            threshold_by_name.setdefault(name, decides)
        _collect_thresholds(used, threshold_by_name, ids_of_functions_seen)


def describe_peak_threshold(limiter: UnitName) -> PageThreshold:
    """Return from where on a unit is near its peak."""
    peak = BY_LIMITER[limiter].peak
    queue = " or ".join(BY_LIMITER[limiter].queue)
    value = (
        f"counts as full at {100 * peak.sure:.0f} % of its peak, or at {100 * peak.likely:.0f} % while "
        f"warps spend {100 * peak.queued:.0f} % of their time in {queue}"
    )
    return PageThreshold(limiter, value, peak.reason)


def read_rule_page(rule: RuleName) -> WrittenPage:
    """Return the page of a rule; a ProfkitError where there is none, or a part of it is missing."""
    from profkit.diagnosis.rules import BY_ID

    known = BY_ID.get(rule)
    page = parse_rule_page(known.page) if known and known.page else read_named_page(f"{rule}.md")
    if page.before is None or page.after is None or not page.false_alarms:
        raise ProfkitError(f"{rule}.md: a part is missing", "Before, After, False alarms")
    return page


def read_named_page(name: str) -> WrittenPage:
    """Return a page: of a bound (words/latency.md), of a family of metrics (metrics/warps.md)."""
    return read_page(FOLDER / name)


@cache
def read_page(file: Path) -> WrittenPage:
    """Return the page in a file."""
    if not is_file(file):
        raise ProfkitError(f"there is no page {file.name}", "write it; its neighbours say how")
    return parse_rule_page(file.read_text("utf-8"))


def parse_rule_page(text: MarkdownText) -> WrittenPage:
    """Return the page that a text says."""
    hardware, *rest = re.split(r"^## (.+)\n", text, flags=re.M)
    parts = dict(zip(rest[::2], rest[1::2], strict=True))
    return WrittenPage(
        hardware=" ".join(hardware.split()),
        official=parts.get("Official page", "").strip().strip("<>"),
        before=_find_first_code_snippet(parts.get("Before", "")),
        after=_find_first_code_snippet(parts.get("After", "")),
        false_alarms=_list_bullets(parts.get("False alarms", "")),
        thresholds=_list_bullets(parts.get("Thresholds", "")),
    )


def _list_bullets(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"^- (.+)$", text, re.M))


def _find_first_code_snippet(text: str) -> Snippet | None:
    match = _CODE.search(text)
    if match:
        return Snippet(match[1], match[2])
    return None


@cache
def _read_probe_measurements() -> dict[str, Any]:
    return dict(json.loads((FOLDER / "measured.json").read_text("utf-8")))


def read_probe_gpu() -> GpuName:
    """Return the GPU that the probes were measured on."""
    return str(_read_probe_measurements()["gpu"])


def read_probe_pairs(rule: RuleName) -> tuple[MeasuredPair, ...]:
    """Return the probes with a twin that a rule must name first, the largest gain first."""
    return tuple(MeasuredPair(**pair) for pair in _read_probe_measurements()["rules"].get(rule, ()))


def find_metric_range_over_probes(metric: MetricName) -> ProbeRange | None:
    """Return where a metric goes on the probes; None where none of them has it."""
    ends = _read_probe_measurements()["metrics"].get(metric)
    return ends and ProbeRange(*((str(name), float(value)) for name, value in ends))
