"""What the machine could do at the clocks that ran, and what the launch did of it: the roofline."""

from __future__ import annotations

from math import nan

from profkit.reports.metrics.derive import (
    SECTOR,
    Metric,
    Raw,
    Source,
    any_total,
    direct_metric,
    product,
)

_ROOF = "SpeedOfLight_RooflineChart"
_TENSOR = "SpeedOfLight_HierarchicalTensorRooflineChart"
_HIERARCHY = "SpeedOfLight_HierarchicalSingleRooflineChart"
_CLOCK = "sm__cycles_elapsed.avg.per_second"
_OPS = "sm__ops_path_tensor_"
# Operands of the tensor cores: short name -> the words of ncu's names that feed such operations.
_TYPES = {
    "fp16": ("src_fp16", "src_fp16_dst_fp16", "src_fp16_dst_fp32", "src_fp16_bf16_tf32_dst_fp32"),
    "bf16": ("src_bf16_dst_fp32",),
    "tf32": ("src_tf32_dst_fp32",),
    "fp64": ("src_fp64",),
    "fp8": (
        "src_fp8",
        "src_fp8_dst_fp16",
        "src_fp8_dst_fp32",
        "src_fp4_fp6_fp8_dst_fp16",
        "src_fp4_fp6_fp8_dst_fp32",
    ),
    "int8": ("src_int8",),
}
_ENGINES = (
    "",
    "op_hmma_",
    "op_hgmma_",
    "op_utchmma_",
    "op_imma_",
    "op_igmma_",
    "op_utcimma_",
    "op_utcqmma_",
    "op_qgmma_",
)
TENSOR_TYPES = tuple(_TYPES)


def _dense_peak(words: tuple[str, ...]) -> Source:
    """Dense operations per second: the largest peak that no sparsity doubles.

    Where ncu splits by sparsity (8.0 and later) the name without it has the sparse peak.
    """
    split = tuple(f"{_OPS}{e}{w}_sparsity_off.sum.peak_sustained" for w in words for e in _ENGINES)
    plain = tuple(f"{_OPS}{w}.sum.peak_sustained" for w in words)

    narrow = f"{_OPS}{words[0]}_dst_fp16.sum"

    def value(r: Raw) -> float:
        there = [n for n in split if n in r] or [n for n in plain if n in r]
        if r.get(narrow, 0.0) == 0:  # GeForce doubles its rate for fp16 sums, which did not run
            there = [n for n in there if "dst_fp16" not in n] or there
        return max(r[n] for n in there) * r[_CLOCK] if there else nan

    return Source(
        (_CLOCK,),
        value,
        f"max dense {_OPS}*{words[0]}*.sum.peak_sustained * SM clock",
        (*split, *plain, narrow),
    )


def _operations(words: tuple[str, ...]) -> Source:
    """Operations counted: per operand type where ncu has it, else sparse and dense added up."""
    plain = tuple(f"{_OPS}{w}.sum" for w in words)
    split = tuple(f"{_OPS}{w}_sparsity_{s}.sum" for w in words for s in ("off", "on"))

    def value(r: Raw) -> float:
        counts = [r[n] for n in plain if n in r] + [r[n] for n in split if n in r]
        return sum(counts) if counts else nan

    return Source((), value, f"sum of {_OPS}{words[0]}*.sum", plain + split)


def _tensor(kind: str) -> tuple[Metric, Metric]:
    return (
        Metric(
            f"tensor_ops_{kind}",
            "count",
            f"Operations of the tensor cores on {kind} operands",
            _TENSOR,
            (_operations(_TYPES[kind]),),
        ),
        Metric(
            f"peak_tensor_{kind}",
            "op/s",
            f"Dense {kind} operations per second of the tensor cores at the measured SM clock",
            _TENSOR,
            (_dense_peak(_TYPES[kind]),),
        ),
    )


METRICS = (
    Metric(
        "peak_dram",
        "byte/s",
        "DRAM bandwidth at the measured memory clock",
        _ROOF,
        (product("dram__bytes.sum.peak_sustained", "dram__cycles_elapsed.avg.per_second"),),
    ),
    Metric(
        "peak_dram_device",
        "byte/s",
        "DRAM bandwidth by the device attributes: 2 * memory clock * bus width / 8",
        "",
        (
            product(
                "device__attribute_memory_clock_rate",
                "device__attribute_global_memory_bus_width",
                factor=2 / 8,
            ),
        ),
    ),
    Metric(
        "peak_l2",
        "byte/s",
        "L2 bandwidth to the SMs at the measured L2 clock",
        _HIERARCHY,
        (
            product(
                "derived__lts__lts2xbar_bytes.sum.peak_sustained",
                "lts__cycles_elapsed.avg.per_second",
            ),
            product(
                "lts__lts2xbar_cycles_active.sum.peak_sustained",
                "lts__cycles_elapsed.avg.per_second",
                factor=SECTOR,
            ),
        ),
    ),
    direct_metric(
        "l2_clock",
        "Hz",
        "L2 clock during the measurement",
        _HIERARCHY,
        "lts__cycles_elapsed.avg.per_second",
    ),
    Metric(
        "peak_l1",
        "byte/s",
        "L1TEX write-back bandwidth at the measured SM clock",
        _HIERARCHY,
        (
            product(
                "derived__l1tex__lsu_writeback_bytes_mem_lgds.sum.peak_sustained",
                "l1tex__cycles_elapsed.avg.per_second",
            ),
            product(
                "derived__l1tex__lsu_writeback_bytes_mem_lg.sum.peak_sustained",
                "l1tex__cycles_elapsed.avg.per_second",
            ),
            product(
                "derived__l1tex__lsu_writeback_bytes.sum.peak_sustained",
                "l1tex__cycles_elapsed.avg.per_second",
            ),
        ),
    ),
    direct_metric(
        "l2_rate",
        "byte/s",
        "Bytes per second from L2 to the SMs",
        _HIERARCHY,
        "derived__lts__lts2xbar_bytes.sum.per_second",
    ),
    direct_metric(
        "l1_rate",
        "byte/s",
        "Bytes per second that L1TEX wrote back to registers",
        _HIERARCHY,
        "derived__l1tex__lsu_writeback_bytes_mem_lgds.sum.per_second",
        "derived__l1tex__lsu_writeback_bytes_mem_lg.sum.per_second",
        "derived__l1tex__lsu_writeback_bytes.sum.per_second",
    ),
    Metric(
        "peak_fp32",
        "op/s",
        "FP32 operations per second (FMA is 2) at the measured SM clock",
        _ROOF,
        (
            product(
                "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained", _CLOCK, factor=2
            ),
        ),
    ),
    Metric(
        "peak_fp64",
        "op/s",
        "FP64 operations per second (FMA is 2) at the measured SM clock",
        _ROOF,
        (
            product(
                "sm__sass_thread_inst_executed_op_dfma_pred_on.sum.peak_sustained", _CLOCK, factor=2
            ),
        ),
    ),
    Metric(
        "peak_fp16",
        "op/s",
        "FP16 operations per second off the tensor cores (half2 FMA is 4)",
        "SpeedOfLight_HierarchicalHalfRooflineChart",
        (
            product("derived__sm__sass_thread_inst_executed_op_hfma_pred_on_x4", _CLOCK),
            product("derived__sm__sass_thread_inst_executed_op_hfma_pred_on_x2", _CLOCK),
        ),
    ),
    *(metric for kind in _TYPES for metric in _tensor(kind)),
    Metric(
        "tensor_ops",
        "count",
        "Operations of the tensor cores, all operand types",
        _TENSOR,
        (
            any_total(
                *sorted(
                    {
                        f"{_OPS}{w}{s}.sum"
                        for ws in _TYPES.values()
                        for w in ws
                        for s in ("", "_sparsity_off", "_sparsity_on")
                    }
                )
            ),
        ),
    ),
)
