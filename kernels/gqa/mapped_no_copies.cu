/* The same kernel with the heads mapped: no copies of K and V.

   Query head h reads key head h / 8 where it lies. The two launches that repeated K and V are gone, and
   blocks of a group that run side by side find them in L2. The kernel itself is as it was: 64 rows a
   block on mma.sync.

   after: expand      arch: 80+
   moves: instructions~1x
   budget: regs=255 smem=80K spills=0 stack=0
*/
#include "heads.cuh"
#define head_of own_or_group_head
#define profkit_launch attend_mapped_heads
#include "../attention/stages/stage3b_register_softmax.cu"
#undef profkit_launch

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return of_group(args) ? attend_mapped_heads(args) : cudaErrorNotSupported;
}
