"""What trials, searches and their end come to  ->  one class each, and the JSON that is kept.

The storage, the history and `tune --json` keep what `to_json` gives: their keys stay as they are,
also where a name here is a better one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from profkit.measure.bench.bench import Times
from profkit.measure.check.check import Check
from profkit.measure.cuda.device import Gpu
from profkit.measure.cuda.graph import GraphLaunch
from profkit.records.store import JsonObject, json_safe

if TYPE_CHECKING:
    from profkit.evidence.timing.stats import TimeComparison

_KEPT_AS = {"reference_time": "anchor_time", "reference": "anchor"}  # as JSON has had it


@dataclass(frozen=True)
class StoredResult:
    """What the storage keeps as JSON."""

    def to_json(self) -> JsonObject:
        """As the storage keeps it."""
        plain: JsonObject = json_safe({_KEPT_AS.get(k, k): v for k, v in asdict(self).items()})
        return plain

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """What `to_json` gave."""
        import msgspec

        names = {kept: name for name, kept in _KEPT_AS.items()}
        return msgspec.convert({names.get(k, k): v for k, v in stored.items()}, cls)


@dataclass(frozen=True)
class Bounds:
    """A median with its interval; None where there is none."""

    median: float | None
    low: float | None
    high: float | None
    level: float = 0.95


@dataclass(frozen=True)
class Challenge:
    """A candidate against the incumbent.

    Attributes:
        against: The incumbent's trial.
        answer: faster, slower, same or cannot tell.
        sentence: The same with its figures.
        speedup: Of the candidate over the incumbent.
        hedges_g: Standardised difference; None where it cannot be known.
        p_value: Two-sided; likewise.
        samples: Of the shorter series.
    """

    against: int
    answer: str
    sentence: str
    speedup: Bounds
    hedges_g: float | None
    p_value: float | None
    samples: int | None = None


@dataclass(frozen=True)
class FiringRule:
    """A finding of a trial's diagnosis: what steering asks."""

    rule: str
    gain: float | None = None
    cause: str = ""
    evidence: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialDiagnosis:
    """What ncu and the rules say of one configuration.

    Attributes:
        bound: Of the verdict.
        limiter: Of the verdict.
        because: Of the verdict.
        findings: What fires, worst first.
        metrics: Those of `watch:`; None: not collected.
        report: Where it is.
        seconds: How long ncu ran.
    """

    bound: str
    limiter: str | None
    because: str
    findings: tuple[FiringRule, ...] = ()
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    report: str | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class TrialResult(StoredResult):
    """What was found out about one configuration; None: not known, or it did not get so far.

    Attributes:
        outcome: measured, pruned, refused, same, wrong, failed, interrupted or repeated.
        reason: Why it ended before its time.
        kind: What refusals are counted by.
        value: Seconds per call, normalised by the reference.
        gpu: CUDA_VISIBLE_DEVICES of the worker.
        gpu_seconds: How long it held the GPU.
        ptxas_regs: The most registers of a kernel that the case launches.
        spills: The most bytes of spills, likewise.
        build_seconds: How long nvcc took.
        code: Identity of its machine code.
        max_abs: Largest absolute error.
        blocks: Of the largest launch, like threads, regs, smem (bytes), blocks_per_sm, occupancy.
        launches: Kernel launches of one call.
        time: Median, seconds per call.
        reference_time: The reference's, beside it.
        against: The incumbent that the quick round was held against, with answer to p_value.
        promoted: faster or metrics: what made it worth more samples.
        confirmed: The comparison of those.
        became_incumbent: Whether it was the fastest confirmed by then.
        verdict: Its diagnosis.
    """

    outcome: str | None = None
    reason: str | None = None
    kind: str | None = None
    value: float | None = None
    gpu: str | None = None
    gpu_seconds: float | None = None
    ptxas_regs: int | None = None
    spills: int | None = None
    build_seconds: float | None = None
    code: str | None = None
    max_abs: float | None = None
    blocks: int | None = None
    threads: int | None = None
    regs: int | None = None
    smem: int | None = None
    blocks_per_sm: int | None = None
    occupancy: float | None = None
    launches: tuple[GraphLaunch, ...] | None = None
    time: float | None = None
    reference_time: float | None = None
    against: int | None = None
    answer: str | None = None
    sentence: str | None = None
    speedup: Bounds | None = None
    hedges_g: float | None = None
    p_value: float | None = None
    promoted: str | None = None
    confirmed: Challenge | None = None
    became_incumbent: bool = False
    verdict: TrialDiagnosis | None = None


@dataclass(frozen=True)
class Basis(StoredResult):
    """What is known of the defaults, which every trial is held to.

    Attributes:
        number: Their trial.
        supported: Cases that they support.
        reference: What every trial is timed beside; None: the defaults are.
        reference_time: Its time, seconds per call.
        gpu: The GPU.
    """

    number: int
    supported: tuple[str, ...]
    reference: str | None
    reference_time: float
    gpu: Gpu | None = None


@dataclass(frozen=True)
class FinalMeasurement(StoredResult):
    """Champion and defaults, checked and timed beside the reference.

    Attributes:
        champion: Its trial.
        default: The defaults' trial.
        trials: How many distinct ones there were.
        comparison: The champion against the defaults, as stats.Comparison has it in JSON.
        times: Name -> samples.
        checks: Name -> verdict.
        launches: Name -> launches of one call.
        gpu: The GPU.
    """

    champion: int
    default: int
    trials: int
    comparison: JsonObject
    times: Mapping[str, Times]
    checks: Mapping[str, Check]
    launches: Mapping[str, tuple[GraphLaunch, ...]]
    gpu: Gpu | None


def challenge(comparison: TimeComparison, against: int, samples: int | None = None) -> Challenge:
    """A comparison with the incumbent, as the history keeps it."""
    plain = comparison.to_json()
    figures = plain["hedges_g"], plain["p_value"], samples
    bounds = Bounds(**plain["speedup"])
    return Challenge(against, comparison.answer, comparison.sentence, bounds, *figures)
