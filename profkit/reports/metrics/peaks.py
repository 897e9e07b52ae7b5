"""What the machine could do at the clocks that ran, and what the launch did of it: the roofline."""

from __future__ import annotations

from itertools import chain, product
from math import nan

from profkit.reports.metrics.derive import Raw, Source, collected, metrics

_CLOCK = "sm__cycles_elapsed.avg.per_second"
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


def _dense_peak(words: list[str]) -> Source:
    """Return dense operations per second: the largest peak that no sparsity doubles.

    Where ncu splits by sparsity (8.0 and later) the name without it has the sparse peak.
    """
    engines = ("", *(f"op_{engine}_" for engine in _ENGINES))
    split = [f"{_OPS}{e}{w}_sparsity_off.sum.peak_sustained" for w, e in product(words, engines)]
    plain = [f"{_OPS}{w}.sum.peak_sustained" for w in words]
    narrow = f"{_OPS}{words[0]}_dst_fp16.sum"

    def value(r: Raw) -> float:
        there = [n for n in split if n in r] or [n for n in plain if n in r]
        if r.get(narrow, 0.0) == 0:  # GeForce doubles its rate for fp16 sums, which did not run
            there = [n for n in there if "dst_fp16" not in n] or there
        return max(r[n] for n in there) * r[_CLOCK] if there else nan

    text = f"max dense {_OPS}*{words[0]}*.sum.peak_sustained * SM clock"
    return Source((_CLOCK,), value, text, (*split, *plain, narrow))


def _counted(words: list[str]) -> list[str]:
    """Return the counters: per operand type where ncu has it, else sparse and dense apart."""
    kinds = ("", "_sparsity_off", "_sparsity_on")
    return [f"{_OPS}{word}{kind}.sum" for kind, word in product(kinds, words)]


_OPERATIONS = {
    kind: collected(sum, _counted(words), f"sum of {_OPS}{words[0]}*.sum")
    for kind, words in _TYPES.items()
}
_PEAKS = {kind: _dense_peak(words) for kind, words in _TYPES.items()}
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
_ALL = sorted(chain.from_iterable(map(_counted, _TYPES.values())))
PEAKS = metrics(
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
