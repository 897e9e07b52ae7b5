/* selfoverlap whose rows are on their way to L2 while the tensor maps still come from DRAM: a negative.

   TMA reads a tensor map before it reads a tensor: in a call that finds a cold L2 two trips to DRAM, one
   after the other. inseries loses 0.65 us at A from warm to cold, splitk, which needs no map, 0.4. coldstart
   did without maps and paid for the addresses. Here the maps stay, and one thread of another warp names what
   will be read, by address: three bulk prefetches (Q, K and V of a block are contiguous rows) that need no
   map. When the map has come, its tensors are in L2, or nearly.

   Expected before it was measured: cold 0.3 to 0.4 us faster than selfoverlap at A, B and V; warm the same,
   since three requests for lines that L2 has cost nothing on the way of the others.

   What came, in one process: the other way. Cold 4.83, 5.99 and 8.25 us at A, B and V where selfoverlap takes
   4.64, 5.07 and 6.95; warm 3.35, 4.14 and 5.79 after 3.19, 3.67 and 4.88. The more bytes are named, the more is
   lost, warm too, where every line is there: each byte is asked for twice, and TMA's request stands behind.

   after: selfoverlap      arch: 90a      flags: -DOVERLAP=2 -DAHEAD=1      case: A
   moves: instructions~1x shared_wavefronts~1x
   budget: regs=255 smem=227K spills=0 stack=0
*/
#include "champion_wgmma_split_keys.cu"
