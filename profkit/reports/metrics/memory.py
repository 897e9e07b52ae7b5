"""The memory system: how busy each level is, what it moved and what hit."""

from __future__ import annotations

from profkit.reports.metrics.derive import metrics

METRICS = metrics("""
[SpeedOfLight]
dram_busy | share | DRAM throughput of peak, elapsed
  gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed
[WorkloadDistribution since 2024.1]
dram_busy_max | share | DRAM throughput of peak, busiest channel
  gpu__dram_throughput.max.pct_of_peak_sustained_elapsed
[SpeedOfLight]
l2_busy | share | L2 throughput of peak: busiest L2 sub-unit, elapsed
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
l2_busy_max | share | L2 throughput of peak, busiest slice
  lts__throughput.max.pct_of_peak_sustained_elapsed
[SpeedOfLight]
l1_busy_active | share | L1TEX throughput of peak, active cycles
  l1tex__throughput.avg.pct_of_peak_sustained_active
l1_busy | share | L1TEX throughput of peak: busiest L1TEX sub-unit, elapsed
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
shared_busy | share | Shared-memory wavefronts of the L1TEX data stage's peak
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
