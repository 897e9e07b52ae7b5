"""Accesses: sectors per request, bank conflicts, local memory, atomics, spills."""

from __future__ import annotations

from profkit.reports.metrics.derive import metrics

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
_ACCESSES = "".join(_ACCESS.format(*kind) for kind in _KINDS)
# Nothing counted means nothing wasted.
_CONFLICT = """\
shared_{0}_conflicts | share | Shared-memory {1} bank conflicts per wavefront
  l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{0}.sum / \
    l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{0}.sum else 0
"""
_CONFLICTS = _CONFLICT.format("ld", "load") + _CONFLICT.format("st", "store")
METRICS = metrics(f"""
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
