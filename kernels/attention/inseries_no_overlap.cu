/* champion, launched after the kernel before it has ended: what overlapping launches are worth.

   champion's launches overlap in a row of calls, as attention layers seldom are: something else runs in
   between. Here each waits as any kernel does. On an H200 A, B and V took 4.24, 4.80 and 5.86 us like
   this and 3.99, 3.93 and 4.87 with the overlap (before parts were merged in registers); splitk, without
   overlap too, takes 4.22, 5.38 and 9.62. So at A the overlap was all that champion gained, at B more
   than half, at V a fifth.

   after: champion      arch: 90a      flags: -DOVERLAP=0
   moves: instructions~1x l2_to_l1_bytes~1x
   budget: regs=255 smem=227K spills=0 stack=0
*/
#include "champion_wgmma_split_keys.cu"
