"""What trials, searches and their end come to  ->  one class each, and the JSON that is kept.

The storage, the history and `tune --json` keep what `to_json` gives: their keys stay as they are,
also where a name here is a better one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from profkit.lab.measure.bench import Times
from profkit.lab.measure.check import Check
from profkit.lab.measure.cuda.device import Gpu
from profkit.lab.measure.cuda.library import GraphLaunch
from profkit.records.store import Document, JsonObject

Bounds = Mapping[str, float | None]  # median, low, high, level of an interval; None: not known


@dataclass(frozen=True)
class Challenge:
    """A candidate against the incumbent."""

    against: int  # the incumbent's trial
    answer: str  # faster, slower, same or cannot tell
    sentence: str  # the same with its figures
    speedup: Bounds  # of the candidate over the incumbent
    hedges_g: float | None  # standardised difference; None where it cannot be known
    p_value: float | None  # two-sided; likewise
    samples: int | None = None  # of the shorter series


@dataclass(frozen=True)
class FiringRule:
    """A finding of a trial's diagnosis: what steering asks."""

    rule: str
    gain: float | None = None
    cause: str = ""
    evidence: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialDiagnosis:
    """What the counters of one call of a configuration say."""

    bound: str
    limiter: str | None
    because: str
    findings: tuple[FiringRule, ...] = ()  # what fires, worst first
    # those of `watch:`; None: not collected
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    report: str | None = None
    seconds: float | None = None  # how long ncu ran


class TrialResult(Document, frozen=True, kw_only=True):
    """What was found out about one configuration; None: not known, or it did not get so far."""

    # measured, pruned, refused, same, wrong, failed, interrupted or repeated
    outcome: str | None = None
    reason: str | None = None  # why it ended before its time
    kind: str | None = None  # what refusals are counted by
    value: float | None = None  # seconds per call, normalised by the reference
    gpu: str | None = None  # CUDA_VISIBLE_DEVICES of the worker
    gpu_seconds: float | None = None  # how long it held the GPU
    ptxas_regs: int | None = None  # the most registers of a kernel that the case launches
    spills: int | None = None  # the most bytes of spills, likewise
    build_seconds: float | None = None  # how long nvcc took
    code: str | None = None  # identity of its machine code
    max_abs: float | None = None  # largest absolute error
    # of the largest launch, like threads, regs, smem (bytes), blocks_per_sm, occupancy
    blocks: int | None = None
    threads: int | None = None
    regs: int | None = None
    smem: int | None = None
    blocks_per_sm: int | None = None
    occupancy: float | None = None
    launches: tuple[GraphLaunch, ...] | None = None  # kernel launches of one call
    time: float | None = None  # median, seconds per call
    # the reference's, beside it
    reference_time: float | None = msgspec.field(default=None, name="anchor_time")
    # the incumbent that the quick round was held against, with answer to p_value
    against: int | None = None
    answer: str | None = None
    sentence: str | None = None
    speedup: Bounds | None = None
    hedges_g: float | None = None
    p_value: float | None = None
    promoted: str | None = None  # faster or metrics: what made it worth more samples
    confirmed: Challenge | None = None
    became_incumbent: bool = False  # whether it was the fastest confirmed by then
    verdict: TrialDiagnosis | None = None


class Basis(Document, frozen=True, kw_only=True):
    """What is known of the defaults, which every trial is held to."""

    number: int  # their trial
    supported: tuple[str, ...]  # cases that they support
    # what every trial is timed beside; None: the defaults are
    reference: str | None = msgspec.field(name="anchor")
    reference_time: float = msgspec.field(name="anchor_time")  # its time, seconds per call
    gpu: Gpu | None = None


class FinalMeasurement(Document, frozen=True, kw_only=True):
    """Champion and defaults, checked and timed beside the reference."""

    champion: int  # its trial
    default: int
    trials: int  # how many distinct ones there were
    comparison: JsonObject  # the champion against the defaults, as stats.Comparison has it in JSON
    times: Mapping[str, Times]  # name -> samples
    checks: Mapping[str, Check]  # name -> verdict
    launches: Mapping[str, tuple[GraphLaunch, ...]]  # name -> launches of one call
    gpu: Gpu | None
