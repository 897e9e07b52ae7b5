"""The memory system: how busy each level is, what it moved and what hit."""

from __future__ import annotations

from math import nan

from profkit.reports.metrics.derive import (
    SECTOR,
    Metric,
    Raw,
    Source,
    any_largest,
    direct_metric,
    product,
    raw_metric,
    total,
)

_PCT = ".avg.pct_of_peak_sustained_elapsed"
_SUM_PCT = ".sum.pct_of_peak_sustained_elapsed"
_SOL = "SpeedOfLight"
_MEM, _TABLES = "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables"
_SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared"


# Stages of L1TEX that ncu gives as shares of twice what they can do, and the compute capabilities
# where it does: there l1tex__throughput, which takes them in, is double where they bind (T4: 99.9 and
# 50.0 %; V100, RTX 3070, 4090, 5060: the links, 1.99 to 2.01 times), and they never pass 50.0 %.
_HALVED = {
    "l1tex__data_pipe_lsu_wavefronts": {(7, 5)},
    "l1tex__m_l1tex2xbar_req_cycles_active": {(7, 0), (7, 5), (8, 6), (8, 9), (12, 0)},
}
_CC = tuple(f"device__attribute_compute_capability_{part}" for part in ("major", "minor"))


def _share_of_peak(name: str, r: Raw) -> float:
    """A unit's share of peak; doubled where ncu halves it."""
    cc = (r.get(_CC[0]), r.get(_CC[1]))
    halved = any(name.startswith(unit) and cc in on for unit, on in _HALVED.items())
    return 0.01 * r[name] * (2 if halved else 1)


def _busy(name: str, what: str, *units: str) -> Metric:
    """Share of elapsed cycles' peak of one unit, from the SpeedOfLight breakdown."""
    names = tuple(unit + _PCT for unit in units)
    if not any(unit in _HALVED for unit in units):
        return Metric(name, "share", what, _SOL, (any_largest(*names),))

    def value(r: Raw) -> float:
        return max((_share_of_peak(n, r) for n in names if n in r), default=nan)

    doubled = (f"{u} twice on {_versions(on)}" for u, on in _HALVED.items() if u in units)
    text = "; ".join((f"max of those collected: {', '.join(names)}", *doubled))
    return Metric(name, "share", what, _SOL, (Source((), value, text, (*names, *_CC)),))


def _versions(capabilities: set[tuple[int, int]]) -> str:
    return ", ".join(f"{major}.{minor}" for major, minor in sorted(capabilities))


def _shared_busy(r: Raw) -> float:
    return _share_of_peak(_SHARED + _SUM_PCT, r)


def _dram_bytes_from_rate(r: Raw) -> float:
    return r["dram__bytes.sum.per_second"] * r["gpu__time_duration.sum"] * 1e-9


METRICS = (
    direct_metric(
        "dram_busy",
        "share",
        "DRAM throughput of peak, elapsed",
        _SOL,
        "gpu__dram_throughput" + _PCT,
    ),
    direct_metric(
        "dram_busy_max",
        "share",
        "DRAM throughput of peak, busiest channel",
        "WorkloadDistribution",
        "gpu__dram_throughput.max.pct_of_peak_sustained_elapsed",
        since="2024.1",
    ),
    direct_metric(
        "l2_busy",
        "share",
        "L2 throughput of peak: busiest L2 sub-unit, elapsed",
        _SOL,
        "lts__throughput" + _PCT,
    ),
    _busy(
        "l2_cache_busy",
        "L2 stages without the fill from DRAM (which is busy on any DRAM stream), elapsed",
        "lts__t_sectors",
        "lts__t_tag_requests",
        "lts__d_sectors",
        "lts__lts2xbar_cycles_active",
        "lts__xbar2lts_cycles_active",
    ),
    _busy("l2_fill_busy", "L2 fills from DRAM", "lts__d_sectors_fill_device"),
    direct_metric(
        "l2_busy_max",
        "share",
        "L2 throughput of peak, busiest slice",
        "WorkloadDistribution",
        "lts__throughput.max.pct_of_peak_sustained_elapsed",
        since="2024.1",
    ),
    direct_metric(
        "l1_busy_active",
        "share",
        "L1TEX throughput of peak, active cycles",
        _SOL,
        "l1tex__throughput.avg.pct_of_peak_sustained_active",
    ),
    _busy(
        "l1_busy",
        "L1TEX throughput of peak: busiest L1TEX sub-unit, elapsed",
        "l1tex__data_pipe_lsu_wavefronts",
        "l1tex__data_bank_reads",
        "l1tex__data_bank_writes",
        "l1tex__lsu_writeback_active",
        "l1tex__lsuin_requests",
        "l1tex__f_wavefronts",
        "l1tex__data_pipe_tex_wavefronts",
        "l1tex__tex_writeback_active",
        "l1tex__texin_sm2tex_req_cycles_active",
        "l1tex__m_l1tex2xbar_req_cycles_active",
        "l1tex__m_xbar2l1tex_read_sectors",
    ),
    _busy(
        "lsu_data_busy",
        "L1TEX data stage: wavefronts of local, global and shared accesses",
        "l1tex__data_pipe_lsu_wavefronts",
    ),
    _busy("lsu_in_busy", "LSU requests entering L1TEX", "l1tex__lsuin_requests"),
    _busy(
        "lsu_writeback_busy",
        "L1TEX writing load results back to registers",
        "l1tex__lsu_writeback_active",
    ),
    Metric(
        "shared_busy",
        "share",
        "Shared-memory wavefronts of the L1TEX data stage's peak",
        _TABLES,
        (Source((_SHARED + _SUM_PCT,), _shared_busy, f"{_SHARED}{_SUM_PCT}; twice on 7.5", _CC),),
    ),
    _busy(
        "texture_busy",
        "Texture stages of L1TEX: filter, data and write-back",
        "l1tex__f_wavefronts",
        "l1tex__data_pipe_tex_wavefronts",
        "l1tex__tex_writeback_active",
        "l1tex__texin_sm2tex_req_cycles_active",
    ),
    _busy(
        "constant_busy",
        "Indexed constant cache (IDC): cycles a request was processed",
        "idc__request_cycles_active",
    ),
    _busy(
        "l2_atomics_busy",
        "L2 atomic unit: cycles with atomic input",
        "lts__d_atomic_input_cycles_active",
    ),
    _busy("l2_tag_busy", "L2 tag lookups", "lts__t_tag_requests"),
    _busy("l2_data_busy", "L2 data banks", "lts__d_sectors"),
    _busy("l2_to_xbar_busy", "L2 results onto the crossbar", "lts__lts2xbar_cycles_active"),
    _busy("xbar_to_l2_busy", "Requests from the crossbar into L2", "lts__xbar2lts_cycles_active"),
    _busy(
        "l1_from_xbar_busy",
        "Sectors returned from the crossbar to L1TEX",
        "l1tex__m_xbar2l1tex_read_sectors",
    ),
    _busy(
        "l1_to_xbar_busy",
        "L1TEX requests onto the crossbar",
        "l1tex__m_l1tex2xbar_req_cycles_active",
    ),
    direct_metric(
        "dram_read",
        "byte",
        "Bytes read from DRAM",
        _TABLES,
        "dram__bytes_read.sum",
        "dram__bytes_op_read.sum",
        "fbpa__dram_read_bytes.sum",
    ),
    direct_metric(
        "dram_write",
        "byte",
        "Bytes written to DRAM",
        _TABLES,
        "dram__bytes_write.sum",
        "dram__bytes_op_write.sum",
        "fbpa__dram_write_bytes.sum",
    ),
    Metric(
        "dram_bytes",
        "byte",
        "Bytes read from and written to DRAM",
        _MEM,
        (
            total("dram__bytes_read.sum", "dram__bytes_write.sum"),
            total("dram__bytes_op_read.sum", "dram__bytes_op_write.sum"),
            total("fbpa__dram_read_bytes.sum", "fbpa__dram_write_bytes.sum"),
            Source(
                ("dram__bytes.sum.per_second", "gpu__time_duration.sum"),
                _dram_bytes_from_rate,
                "dram__bytes.sum.per_second * gpu__time_duration.sum",
            ),
        ),
    ),
    Metric(
        "dram_rate",
        "byte/s",
        "DRAM bandwidth achieved",
        _MEM,
        (
            raw_metric("dram__bytes.sum.per_second"),
            total("dram__bytes_read.sum.per_second", "dram__bytes_write.sum.per_second"),
            total("dram__bytes_op_read.sum.per_second", "dram__bytes_op_write.sum.per_second"),
        ),
    ),
    direct_metric(
        "l2_hit",
        "share",
        "L2 sector hit rate (multi-pass: may pass 1 on short launches)",
        _MEM,
        "lts__t_sector_hit_rate.pct",
    ),
    direct_metric(
        "l2_read_hit",
        "share",
        "L2 sector hit rate of reads",
        _TABLES,
        "lts__t_sector_op_read_hit_rate.pct",
        since="2024.1",
    ),
    direct_metric("l2_sectors", "count", "Sectors looked up in L2", _TABLES, "lts__t_sectors.sum"),
    Metric(
        "l2_bytes",
        "byte",
        "Bytes looked up in L2",
        _TABLES,
        (product("lts__t_sectors.sum", factor=SECTOR),),
    ),
    Metric(
        "l2_read_bytes",
        "byte",
        "Bytes that L1TEX asked of L2",
        _TABLES,
        (product("lts__t_sectors_srcunit_tex_op_read.sum", factor=SECTOR),),
    ),
    Metric(
        "l2_write_bytes",
        "byte",
        "Bytes that L1TEX wrote to L2",
        _TABLES,
        (product("lts__t_sectors_srcunit_tex_op_write.sum", factor=SECTOR),),
    ),
    direct_metric(
        "l2_to_l1_bytes",
        "byte",
        "Bytes that L1TEX received over the crossbar",
        _TABLES,
        "l1tex__m_xbar2l1tex_read_bytes.sum",
    ),
    direct_metric(
        "l1_to_l2_bytes",
        "byte",
        "Bytes that L1TEX sent over the crossbar",
        _TABLES,
        "l1tex__m_l1tex2xbar_write_bytes.sum",
    ),
    direct_metric("l1_hit", "share", "L1TEX sector hit rate", _MEM, "l1tex__t_sector_hit_rate.pct"),
    direct_metric(
        "sysmem_sectors",
        "count",
        "L2 sectors that missed into system memory (over PCIe or C2C)",
        _TABLES,
        "lts__t_sectors_aperture_sysmem_lookup_miss.sum",
    ),
)
