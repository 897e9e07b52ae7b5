"""Pipes and issue slots: how busy each is, of elapsed and of active cycles."""

from __future__ import annotations

from profkit.reports.metrics.derive import metrics


def _pipe(name: str, meaning: str, *units: str) -> str:
    """Return a pipe's share of peak, of elapsed (the SpeedOfLight breakdown) and of active cycles."""
    several = "max of those collected: " if len(units) > 1 else ""
    elapsed, active = (
        several + ", ".join(f"{unit}.avg.pct_of_peak_sustained_{cycles}" for unit in units)
        for cycles in ("elapsed", "active")
    )
    return f"""
[SpeedOfLight]
{name}_busy | share | {meaning}, share of peak, elapsed cycles
  {elapsed}
[ComputeWorkloadAnalysis]
{name}_busy_active | share | {meaning}, share of peak, active cycles
  {active}
"""


_TENSOR_9 = "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active"
_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_ALU = "sm__pipe_alu_cycles_active", "sm__pipe_aluheavy_cycles_active"
_ADU = "ADU pipe (address divergence: constant and barrier addresses)"
METRICS = metrics(f"""
[SpeedOfLight]
tensor_busy | share | Tensor pipe, share of peak, elapsed cycles; before 9.0 and after, HFMA2.MMA \
    counts too (a few per cent without any matrix instruction)
  max({_TENSOR_9}{_ELAPSED}, sm__pipe_tensor_op_dmma_cycles_active{_ELAPSED})
  {_TENSOR_9}{_ELAPSED}
  sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed
[ComputeWorkloadAnalysis]
tensor_busy_active | share | Tensor pipe, share of peak, active cycles
  sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active
{_pipe("fma", "FMA pipe (FP32 and, on 8.6 and later, half2; IMAD)", "sm__pipe_fma_cycles_active")}
[SpeedOfLight]
fmaheavy_busy | share | Heavy half of the FMA pipe (IMAD goes there), elapsed
  sm__pipe_fmaheavy_cycles_active.avg.pct_of_peak_sustained_elapsed
# 12.0 splits ALU; basic sets there have its heavy half only.
{_pipe("alu", "ALU pipe (integer, logic, compare)", *_ALU)}
{_pipe("fp64", "FP64 pipe", "sm__pipe_fp64_cycles_active")}
[SpeedOfLight]
fp16_busy | share | FP16 (half2) instructions, share of their pipe's peak, elapsed
  max of those collected: sm__inst_executed_pipe_fp16.avg.pct_of_peak_sustained_elapsed, \
    sm__inst_executed_pipe_fma_type_fp16.avg.pct_of_peak_sustained_elapsed
[ComputeWorkloadAnalysis]
fp16_busy_active | share | The same, active cycles
  max of those collected: sm__inst_executed_pipe_fp16.avg.pct_of_peak_sustained_active, \
    sm__inst_executed_pipe_fma_type_fp16.avg.pct_of_peak_sustained_active
{_pipe("xu", "XU pipe (exp, log, sin, rsqrt, int-float conversion)", "sm__inst_executed_pipe_xu")}
{_pipe("uniform", "Uniform datapath", "sm__inst_executed_pipe_uniform")}
{_pipe("lsu", "LSU pipe (load-store instructions)", "sm__inst_executed_pipe_lsu")}
{_pipe("tex", "TEX pipe (texture instructions)", "sm__inst_executed_pipe_tex")}
{_pipe("cbu", "CBU pipe (branches, barriers)", "sm__inst_executed_pipe_cbu")}
{_pipe("adu", _ADU, "sm__inst_executed_pipe_adu")}
{_pipe("tma", "TMA unit (9.0 and later)", "sm__pipe_tma_cycles_active")}
[SpeedOfLight]
mio_busy | share | MIO: instructions issued to memory, special and dynamic branches
  sm__mio_inst_issued.avg.pct_of_peak_sustained_elapsed
mio_writeback_busy | share | MIO results written back to registers, elapsed
  sm__mio2rf_writeback_active.avg.pct_of_peak_sustained_elapsed
issue_busy | share | Issue slots used, elapsed cycles
  sm__issue_active.avg.pct_of_peak_sustained_elapsed
  sm__inst_issued.avg.pct_of_peak_sustained_elapsed
[SchedulerStats]
issue_busy_active | share | Issue slots used, active cycles
  smsp__issue_active.avg.pct_of_peak_sustained_active
""")
