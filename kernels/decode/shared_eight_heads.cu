/* The heads of a group share their loads of K and V, on the tensor cores.

   With eight query heads a key head, lanerow reads the cache eight times, from L2 at best. Here a block
   has one key head: each key and value is loaded once, into the very registers that mma.sync takes
   (grouped.cuh), for all heads of the group. So the bytes from L2 fall by eight, and with 1:1 nothing
   is gained but the FMAs. But there are eight times fewer blocks, too: a cache of one sequence is a few.

   after: lanerow      arch: 80+      case: 16k-8
   moves: l2_to_l1_bytes<0.2x instructions<0.3x
   budget: regs=255 smem=40K spills=0 stack=0
*/
#include "grouped.cuh"

using namespace grouped;

template <int D>
__global__ void __launch_bounds__(THREADS) share(Decode c) {
  auto& parts = shared_memory<Part<D>[WARPS]>();
  const int key_head = blockIdx.x, sequence = blockIdx.y;
  Warp<D> warp(c, sequence, key_head);
  warp.attend(0, c.length(sequence));
  warp.leave(parts[threadIdx.x / 32]);
  __syncthreads();
  add_up<D>(
      WARPS, c.group(), [&](int i) -> const Part<D>& { return parts[i]; },
      [&](int head, int d, float o, float, float sum) {
        store<D>(c, sequence, key_head, head, d, o, sum);
      });
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_cache(args, [&](const Decode& c, auto d) {
    constexpr int D = decltype(d)::value;
    if (!fits(c)) return int{cudaErrorNotSupported};
    return int{launch<share<D>>({dim3(c.key_heads, c.batch), THREADS, sizeof(Part<D>[WARPS])},
                                args->stream, c)};
  });
}
