/* selfoverlap whose blocks ask for every line once while the tensor maps still come from DRAM.

   l2ahead meant to save the trip to the map and lost: its bulk prefetches go to TMA, the unit that the
   loads wait for, and each block named all its keys, which at V seven others name as well. Here ordinary
   threads prefetch by the load unit, which has nothing else to do then, and a block names the rows of Q,
   K and V that its own rows have: together the blocks of a head name each line once, a line or two a
   thread. When the maps have come, the tensors are on their way from DRAM, half a microsecond ahead.

   Expected before it was measured: cold 0.25 to 0.35 us faster than selfoverlap, one of two trips to DRAM:
   4.35, 4.8 and 6.6 us at A, B and V (4.64, 5.07 and 6.95); with warm L2 the same within 0.03 us.

   after: selfoverlap      arch: 90a      flags: -DOVERLAP=2 -DAHEAD=2      case: A
   moves: instructions~1x shared_wavefronts~1x
   budget: regs=255 smem=227K spills=0 stack=0
*/
#include "champion_wgmma_split_keys.cu"
