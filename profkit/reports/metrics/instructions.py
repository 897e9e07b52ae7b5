"""Instructions executed, by opcode; active threads; arithmetic rates."""

from __future__ import annotations

from profkit.reports.metrics.derive import (
    OPCODES,
    Metric,
    Raw,
    Source,
    direct_metric,
    opcodes,
    ratio_of,
    raw_metric,
)

_PER_CYCLE = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
_CLOCK = "smsp__cycles_elapsed.avg.per_second"
_COMPUTE = "ComputeWorkloadAnalysis"
_INST, _WARPS, _SOURCE = "InstructionStats", "WarpStateStats", "SourceCounters"
MATRIX_OPCODES = (
    "HMMA",
    "IMMA",
    "BMMA",
    "DMMA",
    "QMMA",
    "OMMA",
    "HGMMA",
    "IGMMA",
    "BGMMA",
    "QGMMA",
    "UTCHMMA",
    "UTCIMMA",
    "UTCQMMA",
    "UTCOMMA",
)  # HFMA2.MMA is no matrix instruction, though 8.0 and 9.0 count it on the tensor pipe


def _per_cycle(*terms: tuple[str, float]) -> Source:
    """Operations per second: per-cycle counts times the SM clock."""
    names = tuple(_PER_CYCLE.format(op) for op, _ in terms)

    def value(r: Raw) -> float:
        return r[_CLOCK] * sum(k * r[n] for n, (_, k) in zip(names, terms, strict=True))

    text = f"({' + '.join(f'{k:g} {op}' for op, k in terms)}) per cycle * SM clock"
    return Source((*names, _CLOCK), value, text)


def _half(fma: str, others: int) -> Source:
    """fp16 operations per second; the factor of a half2 instruction stands in ncu's own names."""
    names = (
        f"derived__smsp__sass_thread_inst_executed_op_hfma_pred_on_{fma}",
        *(_PER_CYCLE.format(op) for op in ("hadd", "hmul")),
        _CLOCK,
    )

    def value(r: Raw) -> float:
        return r[_CLOCK] * (r[names[0]] + others * (r[names[1]] + r[names[2]]))

    return Source(names, value, f"({names[0]} + {others} (hadd + hmul)) * SM clock")


def _fused_metric(name: str, kind: str, what: str) -> Metric:
    """FMA's share of the FMA, add and multiply instructions of a precision."""
    names = tuple(_PER_CYCLE.format(kind + op) for op in ("fma", "add", "mul"))

    def value(r: Raw) -> float:
        every = sum(r[n] for n in names)
        return r[names[0]] / every if every > 0 else 1.0

    return Metric(
        name,
        "share",
        f"Fused multiply-adds among the {what} arithmetic instructions",
        "SpeedOfLight_RooflineChart",
        (Source(names, value, "fma / (fma + add + mul)"),),
    )


def _count(name: str, what: str, *words: str) -> Metric:
    return Metric(name, "count", f"Warp instructions: {what}", _INST, (opcodes(*words),))


METRICS = (
    direct_metric(
        "ipc",
        "count",
        "Warp instructions executed per SM and active cycle",
        _COMPUTE,
        "sm__inst_executed.avg.per_cycle_active",
    ),
    direct_metric(
        "ipc_elapsed",
        "count",
        "Warp instructions executed per SM and elapsed cycle",
        _COMPUTE,
        "sm__inst_executed.avg.per_cycle_elapsed",
    ),
    direct_metric(
        "instructions",
        "count",
        "Warp instructions executed",
        _INST,
        "smsp__inst_executed.sum",
        OPCODES,
    ),
    direct_metric(
        "instructions_issued",
        "count",
        "Warp instructions issued (replays included)",
        _INST,
        "smsp__inst_issued.sum",
    ),
    Metric(
        "threads_per_warp",
        "count",
        "Active threads per warp instruction",
        _WARPS,
        (
            raw_metric("smsp__thread_inst_executed_per_inst_executed.ratio"),
            ratio_of("thread_inst_executed", "inst_executed"),
        ),
    ),
    Metric(
        "threads_per_warp_predicated",
        "count",
        "Active threads per warp instruction that were not predicated off",
        _WARPS,
        (
            raw_metric("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio"),
            ratio_of("thread_inst_executed_true", "inst_executed"),
        ),
    ),
    direct_metric(
        "branch_uniform",
        "share",
        "Branches whose active threads all went the same way",
        _SOURCE,
        "smsp__sass_average_branch_targets_threads_uniform.pct",
    ),
    direct_metric(
        "branches", "count", "Branch instructions", _SOURCE, "smsp__inst_executed_op_branch.sum"
    ),
    _count("inst_matrix", "matrix multiply-accumulate", *MATRIX_OPCODES),
    _count("inst_ffma", "FP32 fused multiply-add", "FFMA", "FFMA2"),
    _count("inst_fp32", "FP32 arithmetic", "FFMA", "FFMA2", "FADD", "FADD2", "FMUL", "FMUL2"),
    _count("inst_fp64", "FP64 arithmetic", "DFMA", "DADD", "DMUL"),
    _count(
        "inst_half", "half-precision arithmetic off the tensor cores", "HFMA2", "HADD2", "HMUL2"
    ),
    _count("inst_imad", "integer multiply-add", "IMAD", "XMAD"),
    _count("inst_mov", "register moves", "MOV"),
    _count("inst_generic", "loads and stores of any address space", "LD", "ST"),
    _count("inst_xu", "special functions and conversions on XU", "MUFU", "I2F", "F2I", "F2F"),
    _count("inst_exp", "MUFU (exp2, rcp, rsqrt, sin, ...)", "MUFU"),
    _count("inst_global_load", "global loads", "LDG", "LD"),
    _count("inst_global_store", "global stores", "STG", "ST"),
    _count("inst_shared_load", "shared-memory loads", "LDS", "LDSM"),
    _count("inst_shared_store", "shared-memory stores", "STS", "STSM"),
    _count(
        "inst_async_copy",
        "asynchronous copies from global to shared memory",
        "LDGSTS",
        "UBLKCP",
        "UTMALDG",
    ),
    _count("inst_barrier", "block barriers", "BAR"),
    _count("inst_warpgroup", "arrivals and waits of wgmma", "WARPGROUP"),
    _count("inst_atomic", "global atomics and reductions", "ATOM", "ATOMG", "RED", "REDG"),
    _count("inst_shuffle", "warp shuffles", "SHFL"),
    _count("inst_membar", "memory fences", "MEMBAR", "FENCE", "ERRBAR"),
    _count("inst_texture", "texture fetches", "TEX", "TLD", "TLD4", "TXQ", "TXD", "TMML"),
    _fused_metric("fp32_fused", "f", "FP32"),
    _fused_metric("fp64_fused", "d", "FP64"),
    Metric(
        "fp32_rate",
        "op/s",
        "FP32 operations per second (FMA is 2)",
        "SpeedOfLight_RooflineChart",
        (_per_cycle(("fadd", 1), ("fmul", 1), ("ffma", 2)),),
    ),
    Metric(
        "fp64_rate",
        "op/s",
        "FP64 operations per second (FMA is 2)",
        "SpeedOfLight_RooflineChart",
        (_per_cycle(("dadd", 1), ("dmul", 1), ("dfma", 2)),),
    ),
    Metric(
        "fp16_rate",
        "op/s",
        "FP16 operations per second off the tensor cores (half2 FMA is 4)",
        "SpeedOfLight_HierarchicalHalfRooflineChart",
        (_half("x4", 2), _half("x2", 1)),
    ),
)
