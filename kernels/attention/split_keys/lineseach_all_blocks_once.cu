/* selfoverlap whose blocks ask for every line once while the tensor maps still come from DRAM.

   l2ahead meant to save the trip to the map and lost: its bulk prefetches go to TMA, the unit that the
   loads wait for, and each block named all its keys, which at V seven others name as well. Here ordinary
   threads prefetch by the load unit, which has nothing else to do then, and a block names the rows of Q,
   K and V that its own rows have: together the blocks of a head name each line once, a line or two a
   thread. When the maps have come, the tensors are on their way from DRAM, half a microsecond ahead.

   Expected before it was measured: cold 0.25 to 0.35 us faster than selfoverlap, one of two trips to DRAM:
   4.35, 4.8 and 6.6 us at A, B and V (4.64, 5.07 and 6.95); with warm L2 the same within 0.03 us.

   What came, in one process: warm the same, 3.22, 3.72 and 4.93 us. Cold 4.87, 5.41 and 7.35 where selfoverlap
   takes 4.93, 5.47 and 7.10: 0.06 us at A and B, and the other way at V. The tensors did come sooner: at A waits
   for data (long_scoreboard) fell from 25 to 17 % of the warps' time under ncu, at B from 17 to 11 %. But those
   for instructions rose, from 9 to 16 % and from 7 to 19 %: code comes from DRAM as well, and each wait had
   hidden the other. A trip to the map is not what a cold call waits for.

   after: selfoverlap      arch: 90a      flags: -DOVERLAP=2 -DAHEAD=2      case: A
   moves: instructions~1x shared_wavefronts~1x
   budget: regs=255 smem=227K spills=0 stack=0
*/
#include "champion_wgmma_split_keys.cu"
