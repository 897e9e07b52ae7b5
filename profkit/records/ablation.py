"""What was measured by taking one cause after the other away from a kernel: part of its run record."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from profkit.files import read_text
from profkit.records.store import Document

if TYPE_CHECKING:
    from profkit.units import Factor, PlainValues, RuleName


# A sure gain from which removing a cause is worth anything: rounds differ by less than this, and nobody
# would change a kernel for less.
WORTH = 1.10


@functools.cache
def read_ablations_by_rule() -> Mapping[str, Mapping[RuleName, Any]]:
    """Return how each rule's cause is measured: the groups of causes.toml, each rule -> by what."""
    return tomllib.loads(read_text(Path(__file__).with_name("causes.toml")))


class Refusal(msgspec.Struct, frozen=True):
    """One cause that could not be removed alone, and why."""

    ablation: str
    code: str  # `steers`, `other-work`, `nothing-to-take-away` ...
    observed: str
    threshold: str
    remedy: str


class LineGain(msgspec.Struct, frozen=True):
    """What one source line has of a gain."""

    line: str  # `name.cu:12`
    gain: float


class MeasuredAblation(msgspec.Struct, frozen=True, kw_only=True):
    """One cause removed: times in seconds, gains as factors."""

    ablation: str
    title: str
    reachable: bool  # whether a fix could get there; else the gain is only a bound
    rules: tuple[str, ...]
    time: float  # the original's time over the gain
    gain: float  # of the control's median over that without the cause
    low: float | None = None  # the ends of its interval; None where too few times were taken
    high: float | None = None
    control: float  # the control's time over the original's: what choosing costs
    # the largest difference of an opcode's executed count; None: not counted
    executed: float | None = None
    changed: str  # in words
    kept: str = ""
    lines: tuple[LineGain, ...] = ()

    @property
    def sure_gain(self) -> Factor:
        """Return the sure gain over the original: the low end of its interval.

        Beside a control that is slower than the original, a gain may be no more than the end of what
        choosing costs.
        """
        least = self.gain
        if self.low is not None:
            least = self.low
        return least / max(1.0, self.control)


class MeasuredPair(msgspec.Struct, frozen=True):
    """Two causes removed together, where what each brings alone does not add up."""

    ablations: tuple[str, str]
    titles: tuple[str, str]
    alone: tuple[float, float]  # the gains of each
    gain: float  # of both
    hidden: bool  # whether each hides the other: alone neither brings anything


class LaunchOnlyTimes(msgspec.Struct, frozen=True):
    """What launch alone showed: times over the original's; None where it was not tried."""

    half_occupancy: float | None = None
    quarter_occupancy: float | None = None
    half_grid: float | None = None
    double_grid: float | None = None
    cold: float | None = None
    idle: float | None = None  # share of the SMs' time without a block
    longest_block: float | None = None  # over the median block
    blocks: int = 0
    blocks_per_sm: int = 0
    occupancy: float | None = None  # resident warps over the most that an SM holds
    occupancy_limit: str = ""


class AblationVerdict(msgspec.Struct, frozen=True):
    """What it waits for, said without counters; `unknown` with what is missing."""

    bound: str
    limiter: str
    cause: str  # a rule; empty where that cannot be told
    because: str
    gain: float | None = None  # of what is reachable, measured
    missing: Refusal | None = None


class AblationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All that was measured of one variant at one case."""

    kernels: tuple[str, ...]
    base: float  # seconds per call, warm
    low: float | None = None
    high: float | None = None
    rebuilt: float | None = None  # the time of the same code assembled here over the original's
    measured: tuple[MeasuredAblation, ...]
    refused: tuple[Refusal, ...]
    shape: LaunchOnlyTimes
    busy: dict[str, float]  # unit -> share of its peak, from counted instructions
    seen: dict[str, float]  # lanes at work, bytes asked for, loads that decide addresses
    verdict: AblationVerdict
    seconds: float = 0.0  # that all of it took
    sm_clock: float | None = None  # Hz, behind the timing
    power: float | None = None  # W
    gpu: str = ""
    pairs: tuple[MeasuredPair, ...] = ()
    others: dict[str, float] = {}  # name -> seconds of what took turns with it

    @classmethod
    def from_record(cls, document: PlainValues) -> AblationRecord | None:
        """Read it from a run record; None where it is of another form."""
        try:
            return msgspec.convert(document, cls, strict=False)
        except msgspec.ValidationError:
            return None

    def to_json(self) -> PlainValues:
        """Return it as plain values for JSON."""
        return msgspec.to_builtins(self)


class AblatedRun(Document, frozen=True, kw_only=True):
    """What each cause costs a variant at a case."""

    variant: str = ""
    case: str = ""
    problem: str = ""
    ablation: AblationRecord | None = None


class AblateDocument(
    Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.ablate/1"
):
    """What `profkit ablate --json` prints."""

    runs: tuple[AblatedRun, ...] = ()
