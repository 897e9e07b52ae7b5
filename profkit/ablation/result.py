"""What was found of a call  ->  its part of a run record, with the verdict."""

from __future__ import annotations

from statistics import median

from profkit.ablation.judge import Case, judge_case
from profkit.ablation.measurement import Found
from profkit.evidence.stats import median_interval
from profkit.measure.cuda.device import Gpu
from profkit.records.ablation import AblationRecord


def describe_found(found: Found, gpu: Gpu, seconds: float) -> AblationRecord:
    base = median(found.base.warm)
    interval = median_interval(list(found.base.warm))
    case = Case(
        seconds=base,
        measured={row.ablation: row for row in found.measured},
        refused={refusal.ablation: refusal for refusal in found.refused},
        shape=found.shape,
        busy=found.busy,
        seen=found.seen,
        sms=gpu.sms,
        dram=gpu.dram_bandwidth,
    )
    ranked = sorted(found.measured, key=lambda row: (not row.reachable, -row.gain))
    return AblationRecord(
        kernels=found.kernels,
        base=base,
        low=interval.low,
        high=interval.high,
        rebuilt=found.rebuilt,
        measured=tuple(ranked),
        refused=found.refused,
        shape=found.shape,
        busy=dict(found.busy),
        seen=dict(found.seen),
        verdict=judge_case(case),
        seconds=seconds,
        sm_clock=found.base.after.sm_clock,
        power=found.base.after.power,
        gpu=gpu.name,
        others=dict(found.others),
    )
