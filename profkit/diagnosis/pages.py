"""What stands of a rule in rules/pages/<id>.md and measured.json  ->  WrittenPage.

A page holds what cannot be worked out of the rule: what happens in the hardware, the smallest code that
does it and that does not, where the rule is wrong, and where NVIDIA writes of it. measured.json is
written by tools/explained.py out of the probes and what was recorded of them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError

FOLDER = Path(__file__).parent / "rules" / "pages"
_CODE = re.compile(r"```(\w+)\n(.*?)```", re.S)


@dataclass(frozen=True)
class Snippet:
    """A piece of code that is shown.

    Attributes:
        language: cuda or sh.
        text: Its lines.
    """

    language: str
    text: str


@dataclass(frozen=True, kw_only=True)
class WrittenPage:
    """What was written by hand of a rule, a word of the verdict, or a family of metrics.

    Attributes:
        hardware: What happens, three sentences.
        official: Address of NVIDIA's page on the subject.
        before: The smallest code that has a rule's cause; None for words and metrics.
        after: The same without it.
        false_alarms: When it is said, or seems to be, and nothing need be done.
        thresholds: What decides and is no constant of the source, each with its reason.
    """

    hardware: str
    official: str
    before: Snippet | None = None
    after: Snippet | None = None
    false_alarms: tuple[str, ...] = ()
    thresholds: tuple[str, ...] = ()


@dataclass(frozen=True)
class MeasuredPair:
    """A probe and its twin without the cause, timed in turns on one GPU.

    Attributes:
        probe: Id of the probe.
        title: First line of its header.
        relieves: What the twin does instead.
        gain: Time of the probe over time of the twin.
    """

    probe: str
    title: str
    relieves: str
    gain: float


@dataclass(frozen=True)
class ProbeRange:
    """The lowest and the highest value of a metric over the probes, each with its probe."""

    low: tuple[str, float]
    high: tuple[str, float]


def rule_page(rule: str) -> WrittenPage:
    """The page of a rule.

    Raises:
        ProfkitError: There is none, or a part of it is missing.
    """
    page = _written(f"{rule}.md")
    if page.before is None or page.after is None or not page.false_alarms:
        raise ProfkitError(f"{rule}.md: a part is missing", "Before, After, False alarms")
    return page


def word_page(word: str) -> WrittenPage:
    """The page of a bound: memory, latency, unknown."""
    return _written(f"words/{word}.md")


def family_page(family: str) -> WrittenPage:
    """The page of a file of the metrics catalogue: memory, warps."""
    return _written(f"metrics/{family}.md")


@cache
def _written(name: str) -> WrittenPage:
    file = FOLDER / name
    if not file.is_file():
        raise ProfkitError(f"there is no rules/pages/{name}", "write it; its neighbours say how")
    hardware, *rest = re.split(r"^## (.+)\n", file.read_text("utf-8"), flags=re.M)
    parts = dict(zip(rest[::2], rest[1::2], strict=True))
    return WrittenPage(
        hardware=" ".join(hardware.split()),
        official=parts.get("Official page", "").strip().strip("<>"),
        before=_snippet(parts.get("Before", "")),
        after=_snippet(parts.get("After", "")),
        false_alarms=_bullets(parts.get("False alarms", "")),
        thresholds=_bullets(parts.get("Thresholds", "")),
    )


def _bullets(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"^- (.+)$", text, re.M))


def _snippet(text: str) -> Snippet | None:
    match = _CODE.search(text)
    return Snippet(match[1], match[2]) if match else None


@cache
def _measured() -> dict[str, Any]:
    measured: dict[str, Any] = json.loads((FOLDER / "measured.json").read_text("utf-8"))
    return measured


def measured_on() -> str:
    """The GPU that the pairs were measured on."""
    return str(_measured()["gpu"])


def measured_pairs(rule: str) -> tuple[MeasuredPair, ...]:
    """The probes that a rule must name first and that have a twin, the largest gain first."""
    return tuple(MeasuredPair(**pair) for pair in _measured()["rules"].get(rule, ()))


def seen(metric: str) -> ProbeRange | None:
    """Where a metric goes on the probes; None where none of them has it."""
    ends = _measured()["metrics"].get(metric)
    return ends and ProbeRange(*((str(name), float(value)) for name, value in ends))
