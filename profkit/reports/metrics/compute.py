"""Pipes, issue slots, instructions and arithmetic rates; what the machine could do: the roofline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, product
from math import nan
from typing import TYPE_CHECKING

from profkit.reports.metrics.derive import (
    MetricFormula,
    RawMetricValues,
    make_formula_of_collected_metrics,
    parse_metrics,
)

if TYPE_CHECKING:
    from profkit.units import NcuMetricName


def _write_pipe(name: str, meaning: str, *units: str) -> str:
    """Return a pipe's share of peak, of elapsed (the SpeedOfLight breakdown) and of active cycles."""
    return f"""
[SpeedOfLight]
{name}_busy | share | {meaning}, share of peak, elapsed cycles
  {_write_largest_share_formula(units, "elapsed")}
[ComputeWorkloadAnalysis]
{name}_busy_active | share | {meaning}, share of peak, active cycles
  {_write_largest_share_formula(units, "active")}
"""


def _write_largest_share_formula(units: Sequence[str], cycles: str) -> str:
    """Return the formula of the largest share of peak that a unit has, in cycles of a kind."""
    shares = ", ".join(f"{unit}.avg.pct_of_peak_sustained_{cycles}" for unit in units)
    if len(units) > 1:
        return f"max of those collected: {shares}"
    return shares


def _map_operations_to_rate_metrics(operand_letter: str) -> dict[str, NcuMetricName]:
    """Return operation -> the metric of its rate, on operands of a kind: f, d or h."""
    return {
        operation: _PER_CYCLE.format(operand_letter + operation)
        for operation in ("fma", "add", "mul")
    }


_TENSOR_9 = "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active"
_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_ALU = "sm__pipe_alu_cycles_active", "sm__pipe_aluheavy_cycles_active"
_ADU = "ADU pipe (address divergence: constant and barrier addresses)"
_PER_CYCLE = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
_F, _D, _H = map(_map_operations_to_rate_metrics, "fdh")
_HFMA = "derived__smsp__sass_thread_inst_executed_op_hfma_pred_on"
_CLOCK = "smsp__cycles_elapsed.avg.per_second"
PIPES = parse_metrics(f"""
[SpeedOfLight]
tensor_busy | share | Tensor pipe, share of peak, elapsed cycles; before 9.0 and after, HFMA2.MMA \
    counts too (a few per cent without any matrix instruction)
  max({_TENSOR_9}{_ELAPSED}, sm__pipe_tensor_op_dmma_cycles_active{_ELAPSED})
  {_TENSOR_9}{_ELAPSED}
  sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed
[ComputeWorkloadAnalysis]
tensor_busy_active | share | Tensor pipe, share of peak, active cycles
  sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active
{_write_pipe("fma", "FMA pipe (FP32 and, on 8.6 and later, half2; IMAD)", "sm__pipe_fma_cycles_active")}
[SpeedOfLight]
fmaheavy_busy | share | Heavy half of the FMA pipe (IMAD goes there), elapsed
  sm__pipe_fmaheavy_cycles_active.avg.pct_of_peak_sustained_elapsed
# 12.0 splits ALU; basic sets there have its heavy half only.
{_write_pipe("alu", "ALU pipe (integer, logic, compare)", *_ALU)}
{_write_pipe("fp64", "FP64 pipe", "sm__pipe_fp64_cycles_active")}
[SpeedOfLight]
fp16_busy | share | FP16 (half2) instructions, share of their pipe's peak, elapsed
  max of those collected: sm__inst_executed_pipe_fp16.avg.pct_of_peak_sustained_elapsed, \
    sm__inst_executed_pipe_fma_type_fp16.avg.pct_of_peak_sustained_elapsed
[ComputeWorkloadAnalysis]
fp16_busy_active | share | The same, active cycles
  max of those collected: sm__inst_executed_pipe_fp16.avg.pct_of_peak_sustained_active, \
    sm__inst_executed_pipe_fma_type_fp16.avg.pct_of_peak_sustained_active
{_write_pipe("xu", "XU pipe (exp, log, sin, rsqrt, int-float conversion)", "sm__inst_executed_pipe_xu")}
{_write_pipe("uniform", "Uniform datapath", "sm__inst_executed_pipe_uniform")}
{_write_pipe("lsu", "LSU pipe (load-store instructions)", "sm__inst_executed_pipe_lsu")}
{_write_pipe("tex", "TEX pipe (texture instructions)", "sm__inst_executed_pipe_tex")}
{_write_pipe("cbu", "CBU pipe (branches, barriers)", "sm__inst_executed_pipe_cbu")}
{_write_pipe("adu", _ADU, "sm__inst_executed_pipe_adu")}
{_write_pipe("tma", "TMA unit (9.0 and later)", "sm__pipe_tma_cycles_active")}
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
INSTRUCTIONS = parse_metrics(f"""
[ComputeWorkloadAnalysis]
ipc | count | Warp instructions executed per SM and active cycle
  sm__inst_executed.avg.per_cycle_active
ipc_elapsed | count | Warp instructions executed per SM and elapsed cycle
  sm__inst_executed.avg.per_cycle_elapsed
[InstructionStats]
instructions | count | Warp instructions executed
  smsp__inst_executed.sum
  sass__inst_executed_per_opcode
instructions_issued | count | Warp instructions issued (replays included)
  smsp__inst_issued.sum
[WarpStateStats]
threads_per_warp | count | Active threads per warp instruction
  smsp__thread_inst_executed_per_inst_executed.ratio
  thread_inst_executed / inst_executed
threads_per_warp_predicated | count | Active threads per warp instruction that were not \
    predicated off
  smsp__thread_inst_executed_pred_on_per_inst_executed.ratio
  thread_inst_executed_true / inst_executed
[SourceCounters]
branch_uniform | share | Branches whose active threads all went the same way
  smsp__sass_average_branch_targets_threads_uniform.pct
branches | count | Branch instructions
  smsp__inst_executed_op_branch.sum
[InstructionStats]
# HFMA2.MMA is not a matrix instruction, though 8.0 and 9.0 count it on the tensor pipe.
inst_matrix | count | Warp instructions: matrix multiply-accumulate
  sass__inst_executed_per_opcode of HMMA, IMMA, BMMA, DMMA, QMMA, OMMA, HGMMA, IGMMA, BGMMA, \
    QGMMA, UTCHMMA, UTCIMMA, UTCQMMA, UTCOMMA
inst_ffma | count | Warp instructions: FP32 fused multiply-add
  sass__inst_executed_per_opcode of FFMA, FFMA2
inst_fp32 | count | Warp instructions: FP32 arithmetic
  sass__inst_executed_per_opcode of FFMA, FFMA2, FADD, FADD2, FMUL, FMUL2
inst_fp64 | count | Warp instructions: FP64 arithmetic
  sass__inst_executed_per_opcode of DFMA, DADD, DMUL
inst_half | count | Warp instructions: half-precision arithmetic off the tensor cores
  sass__inst_executed_per_opcode of HFMA2, HADD2, HMUL2
inst_imad | count | Warp instructions: integer multiply-add
  sass__inst_executed_per_opcode of IMAD, XMAD
inst_mov | count | Warp instructions: register moves
  sass__inst_executed_per_opcode of MOV
inst_generic | count | Warp instructions: loads and stores of any address space
  sass__inst_executed_per_opcode of LD, ST
inst_xu | count | Warp instructions: special functions and conversions on XU
  sass__inst_executed_per_opcode of MUFU, I2F, F2I, F2F
inst_exp | count | Warp instructions: MUFU (exp2, rcp, rsqrt, sin, ...)
  sass__inst_executed_per_opcode of MUFU
inst_global_load | count | Warp instructions: global loads
  sass__inst_executed_per_opcode of LDG, LD
inst_global_store | count | Warp instructions: global stores
  sass__inst_executed_per_opcode of STG, ST
inst_shared_load | count | Warp instructions: shared-memory loads
  sass__inst_executed_per_opcode of LDS, LDSM
inst_shared_store | count | Warp instructions: shared-memory stores
  sass__inst_executed_per_opcode of STS, STSM
inst_async_copy | count | Warp instructions: asynchronous copies from global to shared memory
  sass__inst_executed_per_opcode of LDGSTS, UBLKCP, UTMALDG
inst_barrier | count | Warp instructions: block barriers
  sass__inst_executed_per_opcode of BAR
inst_warpgroup | count | Warp instructions: arrivals and waits of wgmma
  sass__inst_executed_per_opcode of WARPGROUP
inst_atomic | count | Warp instructions: global atomics and reductions
  sass__inst_executed_per_opcode of ATOM, ATOMG, RED, REDG
inst_shuffle | count | Warp instructions: warp shuffles
  sass__inst_executed_per_opcode of SHFL
inst_membar | count | Warp instructions: memory fences
  sass__inst_executed_per_opcode of MEMBAR, FENCE, ERRBAR
inst_texture | count | Warp instructions: texture fetches
  sass__inst_executed_per_opcode of TEX, TLD, TLD4, TXQ, TXD, TMML
[SpeedOfLight_RooflineChart]
fp32_fused | share | Fused multiply-adds among the FP32 arithmetic instructions
  {_F["fma"]} / ({_F["fma"]} + {_F["add"]} + {_F["mul"]}) else 1
fp32_fusable | share | Pairs of a single multiply and a single add, at most, among the FP32 arithmetic
  min({_F["add"]}, {_F["mul"]}) / ({_F["fma"]} + {_F["add"]} + {_F["mul"]}) else 0
fp64_fused | share | Fused multiply-adds among the FP64 arithmetic instructions
  {_D["fma"]} / ({_D["fma"]} + {_D["add"]} + {_D["mul"]}) else 1
fp32_rate | op/s | FP32 operations per second (FMA is 2)
  ({_F["add"]} + {_F["mul"]} + 2 * {_F["fma"]}) * {_CLOCK}
fp64_rate | op/s | FP64 operations per second (FMA is 2)
  ({_D["add"]} + {_D["mul"]} + 2 * {_D["fma"]}) * {_CLOCK}
# The factor of a half2 FMA is in ncu's own names.
[SpeedOfLight_HierarchicalHalfRooflineChart]
fp16_rate | op/s | FP16 operations per second off the tensor cores (half2 FMA is 4)
  ({_HFMA}_x4 + 2 * ({_H["add"]} + {_H["mul"]})) * {_CLOCK}
  ({_HFMA}_x2 + {_H["add"]} + {_H["mul"]}) * {_CLOCK}
""")


_SM_CLOCK = "sm__cycles_elapsed.avg.per_second"
_OPS = "sm__ops_path_tensor_"
# Operands of the tensor cores: short name -> the words of ncu's names that feed such operations.
_TYPES = {
    "fp16": ["src_fp16", "src_fp16_dst_fp16", "src_fp16_dst_fp32", "src_fp16_bf16_tf32_dst_fp32"],
    "bf16": ["src_bf16_dst_fp32"],
    "tf32": ["src_tf32_dst_fp32"],
    "fp64": ["src_fp64"],
    "fp8": [
        "src_fp8",
        "src_fp8_dst_fp16",
        "src_fp8_dst_fp32",
        "src_fp4_fp6_fp8_dst_fp16",
        "src_fp4_fp6_fp8_dst_fp32",
    ],
    "int8": ["src_int8"],
}
_ENGINES = ["hmma", "hgmma", "utchmma", "imma", "igmma", "utcimma", "utcqmma", "qgmma"]
TENSOR_TYPES = tuple(_TYPES)


def _make_dense_peak(ncu_words: list[str]) -> MetricFormula:
    """Return dense operations per second: the largest peak that no sparsity doubles.

    Where ncu splits by sparsity (8.0 and later) the name without it has the sparse peak.
    """
    engines = ("", *(f"op_{engine}_" for engine in _ENGINES))
    split = [
        f"{_OPS}{e}{w}_sparsity_off.sum.peak_sustained" for w, e in product(ncu_words, engines)
    ]
    plain = [f"{_OPS}{w}.sum.peak_sustained" for w in ncu_words]
    narrow = f"{_OPS}{ncu_words[0]}_dst_fp16.sum"

    def compute_peak(r: RawMetricValues) -> float:
        peaks = _select_collected(r, split) or _select_collected(r, plain)
        if r.get(narrow, 0.0) == 0:  # GeForce doubles its rate for fp16 sums, which did not run
            wide = [name for name in peaks if "dst_fp16" not in name]
            peaks = wide or peaks
        if peaks:
            return max(r[name] for name in peaks) * r[_SM_CLOCK]
        return nan

    text = f"max dense {_OPS}*{ncu_words[0]}*.sum.peak_sustained * SM clock"
    return MetricFormula((_SM_CLOCK,), compute_peak, text, (*split, *plain, narrow))


def _select_collected(raw: RawMetricValues, names: Iterable[str]) -> list[str]:
    return [name for name in names if name in raw]


def _list_counters(ncu_words: list[str]) -> list[NcuMetricName]:
    """Return the counters: per operand type where ncu has it, else sparse and dense apart."""
    kinds = ("", "_sparsity_off", "_sparsity_on")
    counters = []
    for kind, word in product(kinds, ncu_words):
        counters.append(f"{_OPS}{word}{kind}.sum")
    return counters


_OPERATIONS = {
    kind: make_formula_of_collected_metrics(
        sum, _list_counters(words), f"sum of {_OPS}{words[0]}*.sum"
    )
    for kind, words in _TYPES.items()
}
_PEAKS = {kind: _make_dense_peak(words) for kind, words in _TYPES.items()}
_TENSORS = "".join(
    f"""
tensor_ops_{kind} | count | Operations of the tensor cores on {kind} operands
  {_OPERATIONS[kind].text}
peak_tensor_{kind} | op/s | \
    Dense {kind} operations per second of the tensor cores at the measured SM clock
  {_PEAKS[kind].text}
"""
    for kind in _TYPES
)
_ALL = sorted(chain.from_iterable(map(_list_counters, _TYPES.values())))
PEAKS = parse_metrics(
    f"""
[SpeedOfLight_RooflineChart]
peak_dram | byte/s | DRAM bandwidth at the measured memory clock
  dram__bytes.sum.peak_sustained * dram__cycles_elapsed.avg.per_second
[]
peak_dram_device | byte/s | DRAM bandwidth by the device attributes: 2 * memory clock * bus width \
    / 8
  0.25 * device__attribute_memory_clock_rate * device__attribute_global_memory_bus_width
[SpeedOfLight_HierarchicalSingleRooflineChart]
peak_l2 | byte/s | L2 bandwidth to the SMs at the measured L2 clock
  derived__lts__lts2xbar_bytes.sum.peak_sustained * lts__cycles_elapsed.avg.per_second
  32 * lts__lts2xbar_cycles_active.sum.peak_sustained * lts__cycles_elapsed.avg.per_second
l2_clock | Hz | L2 clock during the measurement
  lts__cycles_elapsed.avg.per_second
peak_l1 | byte/s | L1TEX write-back bandwidth at the measured SM clock
  derived__l1tex__lsu_writeback_bytes_mem_lgds.sum.peak_sustained * \
    l1tex__cycles_elapsed.avg.per_second
  derived__l1tex__lsu_writeback_bytes_mem_lg.sum.peak_sustained * \
    l1tex__cycles_elapsed.avg.per_second
  derived__l1tex__lsu_writeback_bytes.sum.peak_sustained * l1tex__cycles_elapsed.avg.per_second
l2_rate | byte/s | Bytes per second from L2 to the SMs
  derived__lts__lts2xbar_bytes.sum.per_second
l1_rate | byte/s | Bytes per second that L1TEX wrote back to registers
  derived__l1tex__lsu_writeback_bytes_mem_lgds.sum.per_second
  derived__l1tex__lsu_writeback_bytes_mem_lg.sum.per_second
  derived__l1tex__lsu_writeback_bytes.sum.per_second
[SpeedOfLight_RooflineChart]
peak_fp32 | op/s | FP32 operations per second (FMA is 2) at the measured SM clock
  2 * sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained * \
    sm__cycles_elapsed.avg.per_second
peak_fp64 | op/s | FP64 operations per second (FMA is 2) at the measured SM clock
  2 * sm__sass_thread_inst_executed_op_dfma_pred_on.sum.peak_sustained * \
    sm__cycles_elapsed.avg.per_second
[SpeedOfLight_HierarchicalHalfRooflineChart]
peak_fp16 | op/s | FP16 operations per second off the tensor cores (half2 FMA is 4)
  derived__sm__sass_thread_inst_executed_op_hfma_pred_on_x4 * sm__cycles_elapsed.avg.per_second
  derived__sm__sass_thread_inst_executed_op_hfma_pred_on_x2 * sm__cycles_elapsed.avg.per_second
[SpeedOfLight_HierarchicalTensorRooflineChart]
{_TENSORS}
tensor_ops | count | Operations of the tensor cores, all operand types
  sum of those collected: {", ".join(_ALL)}
""",
    *_OPERATIONS.values(),
    *_PEAKS.values(),
)
