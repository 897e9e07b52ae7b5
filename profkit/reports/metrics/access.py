"""Accesses: sectors per request, bank conflicts, local memory, atomics, spills."""

from __future__ import annotations

from math import nan

from profkit.reports.metrics.derive import (
    SECTOR,
    Metric,
    Raw,
    Source,
    any_total,
    direct_metric,
    div,
    excess,
    opcodes,
    ratio_of,
    total,
)

_TABLES = "MemoryWorkloadAnalysis_Tables"
_SOURCE, _INST = "SourceCounters", "InstructionStats"
_LSU = "l1tex__t_{}_pipe_lsu_mem_{}_op_{}.sum"
_SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
_TEX_OPS = ("atom", "red", "atom_dot_alu", "atom_dot_cas")


def _lsu(kind: str, space: str, op: str) -> str:
    return _LSU.format(kind, space, op)


def _conflicts(op: str) -> Metric:
    conflicts, wavefronts = f"{_CONFLICTS}_op_{op}.sum", f"{_SHARED}_op_{op}.sum"

    def value(r: Raw) -> float:  # nothing counted means nothing wasted
        return r[conflicts] / r[wavefronts] if r[wavefronts] > 0 else 0.0

    return Metric(
        f"shared_{op}_conflicts",
        "share",
        f"Shared-memory {'load' if op == 'ld' else 'store'} bank conflicts per wavefront",
        _TABLES,
        (Source((conflicts, wavefronts), value, f"{conflicts} / {wavefronts}"),),
    )


def _access(space: str, op: str, word: str) -> tuple[Metric, ...]:
    sectors, requests = _lsu("sectors", space, op), _lsu("requests", space, op)
    return (
        direct_metric(
            f"{space}_{word}_sectors",
            "count",
            f"L1TEX sectors of {space} {word}s",
            _TABLES,
            sectors,
        ),
        direct_metric(
            f"{space}_{word}_requests",
            "count",
            f"L1TEX requests of {space} {word}s",
            _TABLES,
            requests,
        ),
        Metric(
            f"{space}_{word}_sectors_per_request",
            "count",
            f"Sectors (32 bytes) that one warp-wide {space} {word} touches: 4 for coalesced "
            "4-byte, 16 for coalesced 16-byte accesses",
            _TABLES,
            (ratio_of(sectors, requests),),
        ),
    )


def _local_share(r: Raw) -> float:
    local = sum(r[_lsu("sectors", "local", op)] for op in ("ld", "st"))
    both = local + sum(r[_lsu("sectors", "global", op)] for op in ("ld", "st"))
    return div(local, both) if both > 0 else (0.0 if local == 0 else nan)


METRICS = (
    Metric(
        "l2_sectors_per_request",
        "count",
        "Sectors that one L1TEX request asks of an L2 line: 4 for whole lines, 1 for scattered words",
        _TABLES,
        (ratio_of("lts__t_sectors_srcunit_tex.sum", "lts__t_requests_srcunit_tex.sum"),),
    ),
    Metric(
        "l2_atomic_sectors",
        "count",
        "L2 sectors of global atomics and reductions",
        _TABLES,
        (
            total(
                "lts__t_sectors_srcunit_tex_op_atom.sum", "lts__t_sectors_srcunit_tex_op_red.sum"
            ),
            any_total(*(f"lts__t_sectors_srcunit_tex_op_{op}.sum" for op in _TEX_OPS)),
        ),
    ),
    Metric(
        "l2_atomic_requests",
        "count",
        "L1TEX requests of global atomics and reductions",
        _TABLES,
        (any_total(_lsu("requests", "global", "atom"), _lsu("requests", "global", "red")),),
    ),
    *_access("global", "ld", "load"),
    *_access("global", "st", "store"),
    *_access("local", "ld", "load"),
    *_access("local", "st", "store"),
    Metric(
        "excess_sectors",
        "share",
        "Share of the L2 sectors of global accesses that coalesced accesses would not need",
        _SOURCE,
        (
            excess(
                "memory_l2_theoretical_sectors_global", "memory_l2_theoretical_sectors_global_ideal"
            ),
        ),
    ),
    direct_metric(
        "global_tag_requests",
        "count",
        "L1TEX tag look-ups of global accesses: one for each line (128 bytes) that a warp touches",
        _SOURCE,
        "memory_l1_tag_requests_global",
    ),
    Metric(
        "excess_shared_wavefronts",
        "share",
        "Share of the shared-memory wavefronts that conflict-free accesses would not need",
        _SOURCE,
        (excess("memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"),),
    ),
    direct_metric(
        "shared_wavefronts",
        "count",
        "Shared-memory wavefronts of the LSU",
        _TABLES,
        _SHARED + ".sum",
    ),
    _conflicts("ld"),
    _conflicts("st"),
    direct_metric(
        "shared_atomics",
        "count",
        "Warp instructions of shared-memory atomics",
        _TABLES,
        "smsp__inst_executed_op_shared_atom.sum",
    ),
    Metric(
        "local_bytes",
        "byte",
        "Bytes of local-memory loads and stores at L1TEX",
        _TABLES,
        (total(_lsu("sectors", "local", "ld"), _lsu("sectors", "local", "st"), factor=SECTOR),),
    ),
    Metric(
        "local_share",
        "share",
        "Share of the local and global L1TEX sectors that are local-memory ones",
        _TABLES,
        (
            Source(
                tuple(_lsu("sectors", s, o) for s in ("local", "global") for o in ("ld", "st")),
                _local_share,
                "local / (local + global) l1tex__t_sectors",
            ),
        ),
    ),
    direct_metric(
        "spill_instructions",
        "count",
        "Warp instructions that the compiler added to spill registers (2025.1 and later)",
        _INST,
        "sass__inst_executed_register_spilling",
        since="2025.1",
    ),
    Metric(
        "local_instructions",
        "count",
        "Warp instructions that load or store local memory",
        _INST,
        (opcodes("LDL", "STL"),),
    ),
    direct_metric(
        "constant_hit",
        "share",
        "Immediate constant cache hit rate (9.0 with 2025.2 and later)",
        _TABLES,
        "smsp__imc_request_hit_rate.pct",
        since="2025.2",
    ),
    direct_metric(
        "instruction_hit",
        "share",
        "Instruction cache (ICC) hit rate (2025.2 and later)",
        _TABLES,
        "sm__icc_request_hit_rate.pct",
        since="2025.2",
    ),
)
