/* inseries that overlaps again where the kernel ahead is one of its own.

   A launch that may start early gains 0.9 us at A where champion follows champion, since that lets the next
   one begin at once. Behind any other kernel there is nothing to gain: its blocks let nobody in before they
   end, and then the early launch and its griddepcontrol.wait cost more than a plain one. champion takes 5.3 us
   at A behind the kernel that empties L2, inseries 4.7. While a stream is captured the launcher can see
   which kernel stands ahead: the node that the stream depends on. It overlaps if that is the one which it
   captured last, and outside of a capture, where nobody can tell, never. The kernel is champion's.

   Expected before it was measured: warm as champion, 3.2, 3.7 and 4.9 us at A, B and V; cold as inseries,
   1.74, 1.95 and 1.49 times SDPA's best backend. 2.0, 2.2 and 1.7 are not to be had like this.

   What came, in one process: warm 3.20, 3.69 and 4.89 us, to the last digit champion's. Cold 5.02, 5.50 and
   7.17 us where inseries takes 4.91, 5.60 and 7.24, champion 5.39, 5.82 and 7.71 and SDPA's best backend 8.47,
   10.63 and 11.04: 1.69, 1.93 and 1.54 times. On another H200 1.75, 2.05 and 1.55, and splitk 1.88 at A.

   after: inseries      arch: 90a      flags: -DOVERLAP=2      case: A
   moves: instructions~1x shared_wavefronts~1x
   budget: regs=255 smem=227K spills=0 stack=0
*/
#include "champion_wgmma_split_keys.cu"
