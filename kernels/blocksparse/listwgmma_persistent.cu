/* The lists in the warpgroup kernel: wgmma, TMA, blocks that stay.

   skipblocks multiplies by mma.sync, 64 rows a block; nomax of the problem attention has 128 rows, which
   is a row of blocks, and a producer that asks for the next block of the list while one is multiplied.
   Blocks stay and take rows in turn, in the order in which they lie: some get a global row, others two
   of the short ones more.

   after: skipblocks      arch: 90a      case: sparse89
   moves: inst_matrix<0.2x instructions<0.6x
   budget: regs=168 smem=227K spills=32 stack=32
*/
#include "listed.cuh"

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_sparse(args, [&](const SparseAttention& a, auto d) {
    return int{listed::start<listed::Plan<decltype(d)::value, listed::Order::IN_TURN>>(a, args->stream)};
  });
}
