/* The longest rows first: what is left at the end is short.

   Which row is how long is known before the launch, and the lists come with an order. Blocks take rows
   in that order, forwards in one round and backwards in the next, so that who had the longest of the
   one has the shortest of the other. The work is the same to the last product.

   after: listwgmma      fixes: workload-imbalance      arch: 90a      case: sparse89
   moves: inst_matrix~1x sm_active>1.15x
   budget: regs=168 smem=227K spills=32 stack=32
*/
#include "listed.cuh"

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_sparse(args, [&](const SparseAttention& a, auto d) {
    return int{listed::start<listed::Plan<decltype(d)::value, true>>(a, args->stream)};
  });
}
