"""Pipes and issue slots: how busy each is, of elapsed and of active cycles."""

from __future__ import annotations

from profkit.reports.metrics.derive import (
    Metric,
    Source,
    any_largest,
    direct_metric,
    largest,
    raw_metric,
)

_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_ACTIVE = ".avg.pct_of_peak_sustained_active"
_SOL, _COMPUTE = "SpeedOfLight", "ComputeWorkloadAnalysis"
_TENSOR_9 = "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active"


def _pipe(name: str, what: str, *units: str) -> tuple[Metric, Metric]:
    """A pipe's share of peak, elapsed (SpeedOfLight breakdown) and active (ComputeWorkload...)."""

    def source(form: str) -> Source:
        names = [unit + form for unit in units]
        return raw_metric(names[0]) if len(names) == 1 else any_largest(*names)

    return (
        Metric(
            f"{name}_busy",
            "share",
            f"{what}, share of peak, elapsed cycles",
            _SOL,
            (source(_ELAPSED),),
        ),
        Metric(
            f"{name}_busy_active",
            "share",
            f"{what}, share of peak, active cycles",
            _COMPUTE,
            (source(_ACTIVE),),
        ),
    )


METRICS = (
    Metric(
        "tensor_busy",
        "share",
        "Tensor pipe, share of peak, elapsed cycles; before 9.0 and after, HFMA2.MMA counts too "
        "(a few per cent without any matrix instruction)",
        _SOL,
        (
            largest(_TENSOR_9 + _ELAPSED, "sm__pipe_tensor_op_dmma_cycles_active" + _ELAPSED),
            raw_metric("sm__pipe_tensor_cycles_active" + _ELAPSED),
        ),
    ),
    direct_metric(
        "tensor_busy_active",
        "share",
        "Tensor pipe, share of peak, active cycles",
        _COMPUTE,
        "sm__pipe_tensor_cycles_active" + _ACTIVE,
    ),
    *_pipe(
        "fma", "FMA pipe (FP32 and, on 8.6 and later, half2; IMAD)", "sm__pipe_fma_cycles_active"
    ),
    direct_metric(
        "fmaheavy_busy",
        "share",
        "Heavy half of the FMA pipe (IMAD goes there), elapsed",
        _SOL,
        "sm__pipe_fmaheavy_cycles_active" + _ELAPSED,
    ),
    # 12.0 splits ALU; basic sets there have its heavy half only.
    *_pipe(
        "alu",
        "ALU pipe (integer, logic, compare)",
        "sm__pipe_alu_cycles_active",
        "sm__pipe_aluheavy_cycles_active",
    ),
    *_pipe("fp64", "FP64 pipe", "sm__pipe_fp64_cycles_active"),
    Metric(
        "fp16_busy",
        "share",
        "FP16 (half2) instructions, share of their pipe's peak, elapsed",
        _SOL,
        (
            any_largest(
                "sm__inst_executed_pipe_fp16" + _ELAPSED,
                "sm__inst_executed_pipe_fma_type_fp16" + _ELAPSED,
            ),
        ),
    ),
    Metric(
        "fp16_busy_active",
        "share",
        "The same, active cycles",
        _COMPUTE,
        (
            any_largest(
                "sm__inst_executed_pipe_fp16" + _ACTIVE,
                "sm__inst_executed_pipe_fma_type_fp16" + _ACTIVE,
            ),
        ),
    ),
    *_pipe(
        "xu", "XU pipe (exp, log, sin, rsqrt, int-float conversion)", "sm__inst_executed_pipe_xu"
    ),
    *_pipe("uniform", "Uniform datapath", "sm__inst_executed_pipe_uniform"),
    *_pipe("lsu", "LSU pipe (load-store instructions)", "sm__inst_executed_pipe_lsu"),
    *_pipe("tex", "TEX pipe (texture instructions)", "sm__inst_executed_pipe_tex"),
    *_pipe("cbu", "CBU pipe (branches, barriers)", "sm__inst_executed_pipe_cbu"),
    *_pipe(
        "adu",
        "ADU pipe (address divergence: constant and barrier addresses)",
        "sm__inst_executed_pipe_adu",
    ),
    *_pipe("tma", "TMA unit (9.0 and later)", "sm__pipe_tma_cycles_active"),
    direct_metric(
        "mio_busy",
        "share",
        "MIO: instructions issued to memory, special and dynamic branches",
        _SOL,
        "sm__mio_inst_issued" + _ELAPSED,
    ),
    direct_metric(
        "mio_writeback_busy",
        "share",
        "MIO results written back to registers, elapsed",
        _SOL,
        "sm__mio2rf_writeback_active" + _ELAPSED,
    ),
    direct_metric(
        "issue_busy",
        "share",
        "Issue slots used, elapsed cycles",
        _SOL,
        "sm__issue_active" + _ELAPSED,
        "sm__inst_issued" + _ELAPSED,
    ),
    direct_metric(
        "issue_busy_active",
        "share",
        "Issue slots used, active cycles",
        "SchedulerStats",
        "smsp__issue_active" + _ACTIVE,
    ),
)
