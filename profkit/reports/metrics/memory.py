"""The memory system: how busy each level is, what it moved and what hit; accesses, by their kind."""

from __future__ import annotations

from itertools import starmap

from profkit.reports.metrics.derive import parse_metrics

_ACCESS = """\
{0}_{1}_sectors | count | L1TEX sectors of {0} {1}s
  l1tex__t_sectors_pipe_lsu_mem_{0}_op_{2}.sum
{0}_{1}_requests | count | L1TEX requests of {0} {1}s
  l1tex__t_requests_pipe_lsu_mem_{0}_op_{2}.sum
{0}_{1}_sectors_per_request | count | Sectors (32 bytes) that one warp-wide {0} {1} touches: \
    4 for coalesced 4-byte, 16 for coalesced 16-byte accesses
  l1tex__t_sectors_pipe_lsu_mem_{0}_op_{2}.sum / l1tex__t_requests_pipe_lsu_mem_{0}_op_{2}.sum
"""
_KINDS = (
    ("global", "load", "ld"),
    ("global", "store", "st"),
    ("local", "load", "ld"),
    ("local", "store", "st"),
)
_ACCESSES = "".join(starmap(_ACCESS.format, _KINDS))
# Nothing counted means nothing wasted.
_CONFLICT = """\
shared_{0}_conflicts | share | Shared-memory {1} bank conflicts per wavefront
  l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{0}.sum / \
    l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{0}.sum else 0
"""
_CONFLICTS = _CONFLICT.format("ld", "load") + _CONFLICT.format("st", "store")
MEMORY = parse_metrics("""
[SpeedOfLight]
dram_busy | share | DRAM throughput, share of its peak, elapsed cycles
  gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed
[WorkloadDistribution since 2024.1]
dram_busy_max | share | DRAM throughput of the busiest channel, share of its peak
  gpu__dram_throughput.max.pct_of_peak_sustained_elapsed
[SpeedOfLight]
l2_busy | share | L2 throughput (its busiest stage), share of peak, elapsed cycles
  lts__throughput.avg.pct_of_peak_sustained_elapsed
l2_cache_busy | share | L2 stages without the fill from DRAM (which is busy on any DRAM stream), \
    elapsed
  max of those collected: lts__t_sectors.avg.pct_of_peak_sustained_elapsed, \
    lts__t_tag_requests.avg.pct_of_peak_sustained_elapsed, \
    lts__d_sectors.avg.pct_of_peak_sustained_elapsed, \
    lts__lts2xbar_cycles_active.avg.pct_of_peak_sustained_elapsed, \
    lts__xbar2lts_cycles_active.avg.pct_of_peak_sustained_elapsed
l2_fill_busy | share | L2 fills from DRAM
  lts__d_sectors_fill_device.avg.pct_of_peak_sustained_elapsed
[WorkloadDistribution since 2024.1]
l2_busy_max | share | L2 throughput of the busiest slice, share of its peak
  lts__throughput.max.pct_of_peak_sustained_elapsed
[SpeedOfLight]
l1_busy_active | share | L1TEX throughput, share of its peak, active cycles
  l1tex__throughput.avg.pct_of_peak_sustained_active
l1_busy | share | L1TEX throughput (its busiest stage), share of peak, elapsed cycles
  max of those collected: l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed, \
    l1tex__data_bank_reads.avg.pct_of_peak_sustained_elapsed, \
    l1tex__data_bank_writes.avg.pct_of_peak_sustained_elapsed, \
    l1tex__lsu_writeback_active.avg.pct_of_peak_sustained_elapsed, \
    l1tex__lsuin_requests.avg.pct_of_peak_sustained_elapsed, \
    l1tex__f_wavefronts.avg.pct_of_peak_sustained_elapsed, \
    l1tex__data_pipe_tex_wavefronts.avg.pct_of_peak_sustained_elapsed, \
    l1tex__tex_writeback_active.avg.pct_of_peak_sustained_elapsed, \
    l1tex__texin_sm2tex_req_cycles_active.avg.pct_of_peak_sustained_elapsed, \
    l1tex__m_l1tex2xbar_req_cycles_active.avg.pct_of_peak_sustained_elapsed, \
    l1tex__m_xbar2l1tex_read_sectors.avg.pct_of_peak_sustained_elapsed
lsu_data_busy | share | L1TEX data stage: wavefronts of local, global and shared accesses
  l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed
lsu_in_busy | share | LSU requests entering L1TEX
  l1tex__lsuin_requests.avg.pct_of_peak_sustained_elapsed
lsu_writeback_busy | share | L1TEX writing load results back to registers
  l1tex__lsu_writeback_active.avg.pct_of_peak_sustained_elapsed
[MemoryWorkloadAnalysis_Tables]
shared_busy | share | Shared-memory wavefronts, share of the peak of L1TEX's data stage
  l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed
[SpeedOfLight]
texture_busy | share | Texture stages of L1TEX: filter, data and write-back
  max of those collected: l1tex__f_wavefronts.avg.pct_of_peak_sustained_elapsed, \
    l1tex__data_pipe_tex_wavefronts.avg.pct_of_peak_sustained_elapsed, \
    l1tex__tex_writeback_active.avg.pct_of_peak_sustained_elapsed, \
    l1tex__texin_sm2tex_req_cycles_active.avg.pct_of_peak_sustained_elapsed
constant_busy | share | Indexed constant cache (IDC): cycles a request was processed
  idc__request_cycles_active.avg.pct_of_peak_sustained_elapsed
l2_atomics_busy | share | L2 atomic unit: cycles with atomic input
  lts__d_atomic_input_cycles_active.avg.pct_of_peak_sustained_elapsed
l2_tag_busy | share | L2 tag lookups
  lts__t_tag_requests.avg.pct_of_peak_sustained_elapsed
l2_data_busy | share | L2 data banks
  lts__d_sectors.avg.pct_of_peak_sustained_elapsed
l2_to_xbar_busy | share | L2 results onto the crossbar
  lts__lts2xbar_cycles_active.avg.pct_of_peak_sustained_elapsed
xbar_to_l2_busy | share | Requests from the crossbar into L2
  lts__xbar2lts_cycles_active.avg.pct_of_peak_sustained_elapsed
l1_from_xbar_busy | share | Sectors returned from the crossbar to L1TEX
  l1tex__m_xbar2l1tex_read_sectors.avg.pct_of_peak_sustained_elapsed
l1_to_xbar_busy | share | L1TEX requests onto the crossbar
  l1tex__m_l1tex2xbar_req_cycles_active.avg.pct_of_peak_sustained_elapsed
[MemoryWorkloadAnalysis_Tables]
dram_read | byte | Bytes read from DRAM
  dram__bytes_read.sum
  dram__bytes_op_read.sum
  fbpa__dram_read_bytes.sum
dram_write | byte | Bytes written to DRAM
  dram__bytes_write.sum
  dram__bytes_op_write.sum
  fbpa__dram_write_bytes.sum
[MemoryWorkloadAnalysis]
dram_bytes | byte | Bytes read from and written to DRAM
  dram__bytes_read.sum + dram__bytes_write.sum
  dram__bytes_op_read.sum + dram__bytes_op_write.sum
  fbpa__dram_read_bytes.sum + fbpa__dram_write_bytes.sum
  dram__bytes.sum.per_second * gpu__time_duration.sum
dram_rate | byte/s | DRAM bandwidth achieved
  dram__bytes.sum.per_second
  dram__bytes_read.sum.per_second + dram__bytes_write.sum.per_second
  dram__bytes_op_read.sum.per_second + dram__bytes_op_write.sum.per_second
l2_hit | share | L2 sector hit rate (multi-pass: may pass 1 on short launches)
  lts__t_sector_hit_rate.pct
[MemoryWorkloadAnalysis_Tables since 2024.1]
l2_read_hit | share | L2 sector hit rate of reads
  lts__t_sector_op_read_hit_rate.pct
[MemoryWorkloadAnalysis_Tables]
l2_sectors | count | Sectors looked up in L2
  lts__t_sectors.sum
l2_bytes | byte | Bytes looked up in L2
  32 * lts__t_sectors.sum
l2_read_bytes | byte | Bytes that L1TEX asked of L2
  32 * lts__t_sectors_srcunit_tex_op_read.sum
l2_write_bytes | byte | Bytes that L1TEX wrote to L2
  32 * lts__t_sectors_srcunit_tex_op_write.sum
l2_to_l1_bytes | byte | Bytes that L1TEX received over the crossbar
  l1tex__m_xbar2l1tex_read_bytes.sum
l1_to_l2_bytes | byte | Bytes that L1TEX sent over the crossbar
  l1tex__m_l1tex2xbar_write_bytes.sum
[MemoryWorkloadAnalysis]
l1_hit | share | L1TEX sector hit rate
  l1tex__t_sector_hit_rate.pct
[MemoryWorkloadAnalysis_Tables]
sysmem_sectors | count | L2 sectors that missed into system memory (over PCIe or C2C)
  lts__t_sectors_aperture_sysmem_lookup_miss.sum
""")
# Sectors per request, bank conflicts, local memory, atomics, spills.
ACCESS = parse_metrics(f"""
[MemoryWorkloadAnalysis_Tables]
l2_sectors_per_request | count | Sectors that one L1TEX request asks of an L2 line: 4 for whole \
    lines, 1 for scattered words
  lts__t_sectors_srcunit_tex.sum / lts__t_requests_srcunit_tex.sum
l2_atomic_sectors | count | L2 sectors of global atomics and reductions
  lts__t_sectors_srcunit_tex_op_atom.sum + lts__t_sectors_srcunit_tex_op_red.sum
  sum of those collected: lts__t_sectors_srcunit_tex_op_atom.sum, \
    lts__t_sectors_srcunit_tex_op_red.sum, lts__t_sectors_srcunit_tex_op_atom_dot_alu.sum, \
    lts__t_sectors_srcunit_tex_op_atom_dot_cas.sum
l2_atomic_requests | count | L1TEX requests of global atomics and reductions
  sum of those collected: l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum, \
    l1tex__t_requests_pipe_lsu_mem_global_op_red.sum
{_ACCESSES}
[SourceCounters]
excess_sectors | share | Share of the L2 sectors of global accesses that coalesced accesses would \
    not need
  1 - memory_l2_theoretical_sectors_global_ideal / memory_l2_theoretical_sectors_global else 0
global_tag_requests | count | L1TEX tag look-ups of global accesses: one for each line (128 \
    bytes) that a warp touches
  memory_l1_tag_requests_global
excess_shared_wavefronts | share | Share of the shared-memory wavefronts that conflict-free \
    accesses would not need
  1 - memory_l1_wavefronts_shared_ideal / memory_l1_wavefronts_shared else 0
[MemoryWorkloadAnalysis_Tables]
shared_wavefronts | count | Shared-memory wavefronts of the LSU
  l1tex__data_pipe_lsu_wavefronts_mem_shared.sum
{_CONFLICTS}
shared_atomics | count | Warp instructions of shared-memory atomics
  smsp__inst_executed_op_shared_atom.sum
local_bytes | byte | Bytes of local-memory loads and stores at L1TEX
  32 * (l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum + \
    l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum)
local_share | share | Share of the local and global L1TEX sectors that are local-memory ones
  (l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum + l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum) \
    / (l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum + \
    l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum + \
    l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum + \
    l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum) else 0
[InstructionStats since 2025.1]
spill_instructions | count | Warp instructions that the compiler added to spill registers (2025.1 \
    and later)
  sass__inst_executed_register_spilling
[InstructionStats]
local_instructions | count | Warp instructions that load or store local memory
  sass__inst_executed_per_opcode of LDL, STL
[MemoryWorkloadAnalysis_Tables since 2025.2]
constant_hit | share | Immediate constant cache hit rate (9.0 with 2025.2 and later)
  smsp__imc_request_hit_rate.pct
instruction_hit | share | Instruction cache (ICC) hit rate (2025.2 and later)
  sm__icc_request_hit_rate.pct
""")
