/* champion, launched after the kernel before it has ended: what overlapping launches are worth.

   champion's launches overlap in a row of calls, as attention layers seldom are: something else runs in
   between. Here each waits as any kernel does: 4.05, 4.55 and 5.87 us at A, B and V on an H200 against
   3.20, 3.69 and 4.89; splitk, without overlap too, takes 4.22, 5.38 and 9.64. The ratio to SDPA's best
   backend, which does not overlap either, is 1.8, 2.1 and 1.6 like this.

   after: champion      arch: 90a      flags: -DOVERLAP=0      moves: instructions~1x shared_wavefronts~1x
   budget: regs=255 smem=227K spills=0 stack=0
*/
#include "champion_wgmma_split_keys.cu"
