"""What a rule is, what it sees of a launch, and what it may answer.

A rule is a function of one launch (a mapping of short metric names to SI values). It indexes the
launch; a metric that was not collected raises NotCollected, which the engine turns into status
"unknown" with the section to collect. It returns a Hit when it fires and None when it is clear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Literal

from profkit.errors import ProfkitError
from profkit.model.launch import Launch, Missing
from profkit.model.scenario import Expectation

Bound = Literal["memory", "compute", "latency", "launch", "balanced", "unknown"]
Status = Literal["fires", "clear", "unknown"]


@dataclass(frozen=True)
class SourceShare:
    """A source line and the share that it has of a finding's cause.

    Attributes:
        file: Source file.
        line: Its line.
        stall: The warp state, where samples decide; "" where a counter does.
        share: Of the counter over the launch, 0-1.
        counter: Name of what was counted (profkit.reports.counters).
        value: The counter here, in its own unit.
        opcode: Of the instruction with the most here; "" when it cannot be told.
        source: The line's text, None where the report has no source.
        waits_for: The line whose result warps wait for here; None when none is known.
    """

    file: str
    line: int
    stall: str
    share: float
    counter: str = ""
    value: float = 0.0
    opcode: str = ""
    source: str | None = None
    waits_for: Producer | None = None


@dataclass(frozen=True)
class Producer:
    """The load, store or barrier that warps wait for: file, line and opcode of its instruction."""

    file: str
    line: int
    opcode: str


@dataclass(frozen=True)
class Finding:
    """What a rule says about one launch.

    Attributes:
        rule: Kebab-case id of the rule.
        status: fires, clear, or unknown (a metric it needs was not collected).
        cause: One line with the figures that decide.
        gain: The speed-up factor if the cause vanished: an upper bound (1.8 means at most 1.8
            times faster), or None where no honest bound can be given.
        evidence: The metrics that the rule looked at, short name -> SI value or None.
        where: The source lines with most of its cause, at most three unless more were asked for;
            empty when not known, or when no line is the cause.
        advice: What people do about it (JSON key "try").
        note: It says something of the measurement and is no cause to mend.
        expect: What people got who mended it; None where nothing was ever measured, and at a roof.
        at_roof: The unit is at what it can reach with the problem's own work: only less work helps.
    """

    rule: str
    status: Status
    cause: str
    gain: float | None = None
    evidence: Mapping[str, float | None] = field(default_factory=dict)
    where: tuple[SourceShare, ...] = ()
    advice: str = ""
    note: bool = False
    expect: Expectation | None = None
    at_roof: bool = False

    @property
    def worth(self) -> float:
        """The speed-up to rank by: what to expect, else the bound; 1 at a roof or without either."""
        if self.at_roof:
            return 1.0
        return self.expect.gain if self.expect else self.gain or 1.0


@dataclass(frozen=True)
class Hit:
    """A rule that fires.

    Attributes:
        cause: One line with the figures that decide.
        gain: The bound on the speed-up; None where none can be given.
        looked: Short names of the metrics it looked at.
        advice: What to do about just this; "" for the rule's own advice.
    """

    cause: str
    gain: float | None
    looked: tuple[str, ...]
    advice: str = ""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule: what it asks, and the examples that are its tests and its page.

    Attributes:
        id: Kebab-case, unique.
        title: One line for tables.
        meaning: What is happening in the hardware and how the rule sees it.
        advice: What people do about it.
        check: The question; see the module's first lines.
        fires: Launches (metrics only) on which it must fire, the plainest one first.
        clear: Launches on which it must be clear, the one most like the first of `fires` first.
        explains: Limiters that this cause can stand behind: it is named before the plain one.
        note: It says something of the measurement, no cause: told apart, and after all causes.
        leads: Its cause comes before every other, whatever the verdict.
    """

    id: str
    title: str
    meaning: str
    advice: str
    check: Callable[[Launch], Hit | None]
    fires: tuple[Mapping[str, float], ...]
    clear: tuple[Mapping[str, float], ...]
    explains: tuple[str, ...] = ()
    note: bool = False
    leads: bool = False

    def __post_init__(self) -> None:
        for name in ("fires", "clear"):
            if isinstance(getattr(self, name), Mapping):
                hint = f"{name} takes a tuple of launches: {name}=({{...}},)"
                raise ProfkitError(f"rule {self.id}: {name} is a single mapping", hint)


@dataclass(frozen=True)
class NearBorder:
    """A verdict that a little more or less would have turned.

    Attributes:
        other: The bound on the other side.
        margin: By what share the deciding figure would have to move, 0.01 is 1 %.
        why: The figure and its border, one clause.
    """

    other: Bound
    margin: float
    why: str


@dataclass(frozen=True)
class Diagnosis:
    """The verdict on one launch.

    Attributes:
        bound: memory, compute, latency, launch, balanced or unknown.
        limiter: Which level, pipe, stall or shape; None when unknown.
        because: One sentence with the two numbers that decide.
        findings: Firing ones first, worst first; then unknown; then clear.
        missing: What to collect for a better answer.
        near_border: The bound that it nearly was; None for a clear one.
        headroom: How many times faster the same work could be done: the time over the time at which
            the unit that binds is at what it can reach. None when not collected.
    """

    bound: Bound
    limiter: str | None
    because: str
    findings: tuple[Finding, ...]
    missing: tuple[Missing, ...]
    near_border: NearBorder | None = None
    headroom: float | None = None

    @property
    def top(self) -> Finding | None:
        """The finding that leads: the verdict's cause; None when nothing fires but notes."""
        fires = (f for f in self.findings if f.status == "fires" and not f.note)
        return next(fires, None)

    def saves(self, time: float) -> float:
        """Seconds of a launch of this duration that its leading finding is expected to save.

        0 at a roof; NaN when the duration is not known or that finding has no expectation: what
        another finding promises is not said of this one.
        """
        if self.top is None or (self.top.expect is None and not self.top.at_roof):
            return nan
        return time * (1 - 1 / max(self.top.expect.gain, 1.0)) if self.top.expect else 0.0 * time

    @property
    def label(self) -> str:
        """What it is bound by in two words: "memory: shared", "unknown"."""
        return f"{self.bound}: {self.limiter}" if self.limiter else self.bound
