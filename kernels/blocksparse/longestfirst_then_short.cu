/* The longest rows first: what is left at the end is short.

   Which row is how long is known before the launch, and the lists come with an order. Blocks take rows
   in that order, forwards in one round and backwards in the next, so that who had the longest of the
   one has the shortest of the other. The work is the same to the last product.

   It was to mend workload-imbalance, which listwgmma no longer had, and to keep SMs busier by 1.15x.
   What came: 260 us after 266 at sparse89 and SMs as idle as before, 1.08x and 1.09x at sparse75 and
   sparse53. Each SM still gets as many rows as another, whoever has a long one: evenshare.

   after: listwgmma      arch: 90a      case: sparse89
   moves: inst_matrix~1x      moves-not: sm_active>1.15x
   budget: regs=168 smem=227K spills=32 stack=32
*/
#include "listed.cuh"

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_sparse(args, [&](const SparseAttention& a, auto d) {
    using Plan = listed::Plan<decltype(d)::value, listed::Order::LONGEST_FIRST>;
    return int{listed::start<Plan>(a, args->stream)};
  });
}
