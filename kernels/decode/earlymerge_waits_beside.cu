/* splitkv, whose merge is there when the last split ends.

   A merge of splitkv is launched when the last split has ended, on 32 blocks of eight heads each, and goes
   through the parts one after the other: profkit names grid-too-small, 1.93x (1.42 to 2.42) of 7.9 us at
   16k-8. Here it waits beside the splits (early.cuh), a block a query head, with all loads at once.

   What came: 68.0 us after 70.6 at 16k-8, 95 % of a copy's rate; SDPA takes 68.1 beside it. Under ncu,
   where nothing overlaps, the merge takes 4.0 us after 7.9, and that is a launch. In the splits DRAM is
   at its roof.

   after: splitkv      arch: 90+      case: 16k-8
   moves: dram_read~1x
   budget: regs=255 smem=40K spills=0 stack=0
*/
#include "early.cuh"

template <int D>
__global__ void __launch_bounds__(early::THREADS) split_early(Decode c, early::Part<D>* space) {
  auto& parts = shared_memory<early::Part<D>[early::WARPS]>();
  let_next_kernel_start();
  const early::Share share(c);
  early::Warp<D> warp(c, blockIdx.z, blockIdx.y);
  warp.attend(share.first, share.end);
  warp.leave(parts[threadIdx.x / 32]);
  __syncthreads();
  early::leave_block<D>(c, parts, space);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_cache(args, [&](const Decode& c, auto d) {
    constexpr int D = decltype(d)::value;
    return early::start<split_early<D>, D, early::Warp<D>::STEP>(
        c, sizeof(early::Part<D>[early::WARPS]), args->stream);
  });
}
