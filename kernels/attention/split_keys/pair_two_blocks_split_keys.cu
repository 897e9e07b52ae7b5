/* Keys split over warpgroups and over two blocks, wgmma, TMA: parts added up in shared memory.

   splitk is limited by what each SM fetches (all of K and V for 32 rows: 17 MB at B) and by the
   instructions that feed mma.sync. Here a block has 64 rows and, where that leaves SMs idle, a cluster
   of two blocks halves the keys: each fetches half of K and V, 9 MB in all at B, and still 128 blocks
   run. wgmma reads K and V from shared memory itself, so no ldmatrix is issued; each warpgroup has
   its own keys, 128 or 64, and its own barriers, so nothing waits for anybody until the end. Then each
   block finishes half of the rows: the parts that belong to the other block are written straight into
   its shared memory, and one cluster barrier later both add up. Launches may overlap the end of the
   kernel before them, which hides barriers' setting up.

   Against splitk: bytes from L2 halve, instructions fall by two thirds or more, HMMA becomes HGMMA.
   What is left at B is latency: one trip to L2, two products, one softmax, one cluster barrier.

   What came: at V, where no cluster is needed, bytes to 0.52 and instructions to 0.40. At B 0.67 and
   0.50, at A 0.83 and 0.59: Q goes to both blocks, and the parts that they give each other, 2 MB, count
   as bytes that reach an SM; the smaller K and V, the more of the whole that is.

   after: splitk      arch: 90a      moves: l2_to_l1_bytes<0.9x instructions<0.6x
   budget: regs=255 smem=227K spills=0 stack=0
   tune: OVERLAP=1,0
*/
#include "parts.cuh"

#ifndef OVERLAP
#define OVERLAP 1  // start before the kernel before has ended
#endif

using parts::Plan;

template <class P>
__global__ void __launch_bounds__(P::THREADS, 1)
    pair(Attention a, const __grid_constant__ parts::Maps maps) {
  parts::attend<P, OVERLAP>(a, maps);
}

template <class P>
cudaError_t start(const Attention& a, cudaStream_t stream) {
  return parts::start<P, pair<P>, OVERLAP>(a, stream);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    int sms = 0;
    if (cudaError_t e = device_attribute<cudaDevAttrMultiProcessorCount>(&sms)) return e;
    bool alone =
        2 * ceil_div(a.length, parts::M) * a.heads > sms;  // two blocks for the same rows: too many
    if constexpr (D == 128)
      return alone ? start<Plan<128, 2, 64, 2, 1>>(a, args->stream)
                   : start<Plan<128, 2, 64, 1, 2>>(a, args->stream);
    else if (alone)
      return start<Plan<64, 2, 128, 2, 1>>(a, args->stream);
    else if (a.length <= 256)
      return start<Plan<64, 2, 64, 1, 2>>(a, args->stream);
    else
      return start<Plan<64, 2, 128, 1, 2>>(a, args->stream);
  });
}
