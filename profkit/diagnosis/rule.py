"""What a rule is, what it sees of a launch, and what it may answer.

A rule is a function of one launch (a mapping of short metric names to SI values). It indexes the
launch; a metric that was not collected raises NotCollected, which the engine turns into status
"unknown" with the section to collect. It returns a Hit when it fires and None when it is clear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import nan
from typing import TYPE_CHECKING, Literal

from profkit.errors import ProfkitError
from profkit.judge import Estimate, Finding, Rule
from profkit.model.launch import Missing, StrictLaunch
from profkit.model.scenario import Expectation, Fix, estimate_gain_of_fixes, get_expectation

if TYPE_CHECKING:
    from profkit.reports.addresses import Layouts
    from profkit.units import Factor, FactorOrOne, MetricName, SecondsOrNan

Bound = Literal["memory", "compute", "latency", "launch", "balanced", "unknown"]


@dataclass(frozen=True)
class SourceShare:
    """A source line and the share that it has of a finding's cause."""

    file: str
    line: int
    stall: str  # the warp state, where samples decide; "" where a counter does
    share: float  # of the counter over the launch, 0-1
    counter: str = ""  # what was counted (profkit.reports.instruction)
    value: float = 0.0  # the counter here, in its own unit
    opcode: str = ""  # of the instruction with the most here; "" when it cannot be told
    source: str | None = None  # the line's text, None where the report has no source
    waits_for: Producer | None = None  # the line whose result warps wait for here
    # Of a line that is inlined in several places, the call with most of it.
    called_at: Caller | None = None


@dataclass(frozen=True)
class Producer:
    """The load, store or barrier that warps wait for: file, line and opcode of its instruction."""

    file: str
    line: int
    opcode: str


@dataclass(frozen=True)
class Caller:
    """Where an inlined line is called, and the part of the line's cause that comes from there."""

    file: str
    line: int
    share: float  # of the line's, 0-1


@dataclass(frozen=True)
class MeasuredGain:
    """What came of taking a finding's cause away and timing what is left."""

    ablation: str
    title: str  # what was taken away: `shared bank conflicts`
    gain: float  # the speed-up, and the ends of its interval
    low: float | None
    high: float | None
    reachable: bool  # whether a fix could get there; else the gain is only a bound


@dataclass(frozen=True, kw_only=True)
class LaunchFinding(Finding):
    """What a rule says about one launch; what it saves is a speed-up.

    Its lines are those with most of its cause, at most three unless more were asked for; none where they
    are not known, or no line is the cause. Unknown: a metric that it needs was not collected.
    """

    where: tuple[SourceShare, ...] = ()
    note: bool = False  # it says something of the measurement and is no cause to fix
    # The unit is at what it can reach with the problem's own work: only less work helps.
    at_roof: bool = False
    explains: tuple[str, ...] = ()  # limiters that it can be the cause of in this launch
    repeats: str = ""  # the leading rule, where this unit is full of that one's work
    # Of bank conflicts: layouts without them, where the addresses say which.
    layouts: Layouts | None = None
    measured: MeasuredGain | None = (
        None  # `profkit ablate` did, and its record lies beside the report
    )

    @property
    def is_cause(self) -> bool:
        """Return whether it fires and is something to fix rather than a note on the measurement."""
        return self.status == "fires" and not self.note

    @property
    def gain(self) -> Factor | None:
        """Return the bound on the speed-up (1.8: at most 1.8 times faster); None where there is none."""
        return self.saving.bound

    @property
    def expect(self) -> Expectation | None:
        """Return what people got who fixed it; None where nothing was ever measured, and at a roof."""
        return get_expectation(self.saving)

    @property
    def measured_reachable_gain(self) -> Factor | None:
        """Return the speed-up that was measured and that a fix could reach; None: not measured."""
        if self.measured and self.measured.reachable:
            return self.measured.gain
        return None

    @property
    def ranking_gain(self) -> FactorOrOne:
        """Return the speed-up to rank by: measured, expected, else the bound.

        1 at a roof or without any.
        """
        if self.measured_reachable_gain is not None:
            return self.measured_reachable_gain
        if self.at_roof:
            return 1.0
        if self.expect:
            return self.expect.gain
        return self.gain or 1.0


@dataclass(frozen=True)
class CombinedGain:
    """Two findings of different kinds, priced at once: a better shape and less work multiply."""

    rules: tuple[str, str]
    gain: float | None  # the bound on the speed-up when both are gone
    expect: Expectation
    is_more_than_product: bool = False  # of what each is expected to bring


@dataclass(frozen=True)
class Hit:
    """A rule that fires.

    Attributes:
        cause: One line with the figures that decide.
        gain: The bound on the speed-up of a rule of your own; of profkit's rules the model prices.
        looked: Short names of the metrics it looked at; empty for what its rule `looks` at.
        advice: What to do about just this; "" for the rule's own advice.
        explains: Limiters that it can be the cause of in this launch; empty for its rule's.
    """

    cause: str
    gain: float | None = None
    looked: tuple[str, ...] = ()
    advice: str = ""
    explains: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Measure:
    """How much of a rule's cause a launch has, whether or not the rule fires.

    Two launches are compared by it: a rule may be clear because another explains what it sees.

    Attributes:
        of: The amount, in SI; raises NotCollected.
        what: What it is an amount of, after the number: "of the warps' time".
        unit: As in the catalogue of metrics.
        border: The amount from which the cause is there; None: no amount is small.
        less_is_worse: The cause is there below the border.
        of_time: It is a share of the launch's time: the same share of a shorter launch is less.
    """

    of: Callable[[StrictLaunch], float]
    what: str
    unit: str = "share"
    border: float | None = None
    less_is_worse: bool = False
    of_time: bool = False

    def is_enough_for_cause(self, amount: float) -> bool:
        """Return whether this much is enough for the cause."""
        if self.border is None:
            return amount > 0
        if self.less_is_worse:
            return amount < self.border
        return amount >= self.border

    def is_less_of_cause(self, amount: float, other_amount: float) -> bool:
        """Return whether an amount is less of the cause than another one."""
        if self.less_is_worse:
            return amount > other_amount
        return amount < other_amount


@dataclass(frozen=True, kw_only=True)
class LaunchRule(Rule[Fix | None, Mapping[str, float]]):
    """One rule: what it asks, what it says, and the examples that are its tests and its page.

    Attributes:
        triton: The same where the kernel is Triton's; "" where its words are no others.
        check: The question; see the module's first lines.
        fires: Launches (metrics only) on which it must fire; `clear`: on which it must not.
        looks: Short names of the metrics that it looks at.
        explains: Limiters that it can be the cause of: it is named before the plain one.
        note: It says something of the measurement: named apart, and after all causes.
        leads: Its cause comes before every other, whatever the verdict.
        otherwise: Asked only where no other rule fires.
        lines: The counters that choose its lines (profkit.reports.instruction), the best first; the
            first that the report has and that is not zero does. Empty: it happens at no line.
        fix: What fixing it takes away; None: its Hit's gain is the bound.
        least: The bound on the speed-up below which it is not worth a line.
        less_work: It is work that need not be done: with it a full unit is not near the hardware limit.
        own_work: Its unit does the problem's own work: bytes that must cross, operations that must
            be done. Of the others (caches, issue slots) how it is written asks more or less.
        shape: The limiter that it is as a launch's shape.
        costs: How much slower that shape is, if that is not its bound.
        measures: How much of its cause there is: of two launches that with which it fired counts.
            Empty: only whether it fires is known.
        page: Its page; "" where that is rules/pages/<id>.md.
    """

    check: Callable[[StrictLaunch], Hit | None]
    fix: Fix | None = None
    triton: str = ""
    looks: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()
    note: bool = False
    leads: bool = False
    otherwise: bool = False
    lines: tuple[str, ...] = ()
    least: float = 1.0
    less_work: bool = False
    own_work: bool = False
    shape: str = ""
    costs: Callable[[StrictLaunch], float] | None = None
    measures: tuple[Measure, ...] = ()
    page: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.looks, str):
            hint = f"looks takes a tuple of names: looks={tuple(self.looks.split())}"
            raise ProfkitError(f"rule {self.id}: looks is a single text", hint)

    def evaluate_launch(self, launch: StrictLaunch) -> tuple[Hit, Estimate] | None:
        """Return what it says and its worth; None where it is clear, or not worth a line."""
        hit = self.check(launch)
        if hit is None:
            return None
        if not hit.looked:
            hit = replace(hit, looked=self.looks)
        saving = Estimate(bound=hit.gain)
        if self.fix:
            saving = estimate_gain_of_fixes(launch, self.fix)
        if saving.bound is not None and saving.bound < self.least:
            return None
        return hit, saving


def launch(**metrics: float) -> dict[MetricName, float]:
    """Return a launch for a rule's `fires` or `clear`: its metrics by their short names."""
    return {name: float(value) for name, value in metrics.items()}


@dataclass(frozen=True)
class NearBorder:
    """A verdict that a little more or less would have turned."""

    other: Bound  # on the other side
    margin: float  # by what share the deciding figure would have to move, 0.01 is 1 %
    why: str  # the figure and its border, one clause


@dataclass(frozen=True)
class Diagnosis:
    """One launch judged: what it is bound by, the findings, and what was not collected."""

    bound: Bound
    limiter: str | None  # which level, pipe, stall or shape; None when unknown
    because: str  # one sentence with the two numbers that decide
    findings: tuple[
        LaunchFinding, ...
    ] = ()  # firing ones first, worst first; then unknown; then clear
    missing: tuple[Missing, ...] = ()  # what to collect for a better answer
    near_border: NearBorder | None = None
    # The time over the time at which the unit that binds is at what it can reach, doing the same
    # work. None when not collected.
    headroom: float | None = None
    together: CombinedGain | None = (
        None  # what two of the findings are worth at once; None: no more than one
    )

    # Whether the unit that binds is as full as such units get; else warps queue for it all the same.
    is_full: bool = True

    @property
    def top(self) -> LaunchFinding | None:
        """Return the finding that leads: the verdict's cause; None when nothing fires but notes."""
        for finding in self.findings:
            if finding.is_cause:
                return finding
        return None

    def estimate_saved_time(self, launch_seconds: SecondsOrNan) -> SecondsOrNan:
        """Return the seconds of a launch this long that fixing its leading finding should save.

        Where the interval is too wide for a number, that is its low end. 0 at a roof; NaN when the
        duration is not known or that finding has no expectation: what another finding promises is not
        said of this one.
        """
        if self.top and self.top.measured_reachable_gain is not None:
            return launch_seconds * (1 - 1 / max(self.top.measured_reachable_gain, 1.0))
        if self.top is None or (self.top.expect is None and not self.top.at_roof):
            return nan
        if self.top.expect and self.top.expect.is_wide:
            return launch_seconds * (1 - 1 / max(self.top.expect.low, 1.0))
        if self.top.expect:
            return launch_seconds * (1 - 1 / max(self.top.expect.gain, 1.0))
        return 0.0 * launch_seconds

    def estimate_least_saved_time(self, launch_seconds: SecondsOrNan) -> SecondsOrNan:
        """Return the seconds that fixing the leading finding should save at least: its low end."""
        top = self.top
        if top is None or top.measured_reachable_gain is not None or top.expect is None:
            return self.estimate_saved_time(launch_seconds)
        return launch_seconds * (1 - 1 / max(top.expect.low, 1.0))

    @property
    def label(self) -> str:
        """Return what it is bound by in two words: "memory: shared", "unknown"."""
        if self.limiter:
            return f"{self.bound}: {self.limiter}"
        return self.bound
