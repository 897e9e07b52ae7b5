/* One pass: a block keeps its row in registers, 16 bytes an access.

   x and r are loaded in eights, all of a thread's loads before the first use; h stays where it is, in
   four registers an eight, for the variance and for y. Three loads of an element become one eighth of
   one (and w and b), and what is waited for is DRAM once instead of L1 three times.

   What came: 59.8 us after 87.5 at LN4096, where a copy takes 49.0 and the Triton rung 50.7. The machine
   code says why: LDG.E, not LDG.E.128. A struct of four half2 is copied four bytes at a time, here and in
   ring and warprow; a uint4 is one load: widerow.

   after: threepass      arch: 80+
   moves-not: inst_global_load<0.1x instructions<0.5x
   budget: regs=128 smem=1K spills=0 stack=0
*/
#include "norm.cuh"

constexpr int WARPS = 16;

// A thread has V eights; the block as many threads as the row needs.
template <class T, bool RMS, int V>
__global__ void __launch_bounds__(32 * WARPS) one_pass(Norm<T> n) {
  auto& scratch = shared_memory<float[2][WARPS]>();
  const int eights = n.width / 8, warps = blockDim.x / 32, step = blockDim.x;
  const size_t row = static_cast<size_t>(blockIdx.x) * eights;
  Eight<T> h[V], r[V];
#pragma unroll
  for (int v = 0, i = threadIdx.x; v < V; ++v, i += step)
    if (i < eights) h[v] = eights_of(n.x)[row + i], r[v] = eights_of(n.r)[row + i];
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int v = 0, i = threadIdx.x; v < V; ++v, i += step)
    if (i < eights) {
      sum += h[v].add(r[v]);
      eights_of(n.h)[row + i] = h[v];
    }
  float mean = RMS ? 0.0f : block_sum(sum, scratch[0], warps) / n.width;
#pragma unroll
  for (int v = 0, i = threadIdx.x; v < V; ++v, i += step)
    if (i < eights) squares += h[v].squares(mean);
  float factor = rsqrtf(block_sum(squares, scratch[1], warps) / n.width + n.eps);
#pragma unroll
  for (int v = 0, i = threadIdx.x; v < V; ++v, i += step)
    if (i < eights) {
      Eight<T> w = eights_of(n.w)[i], b = w;
      if (!RMS) b = eights_of(n.b)[i];
      eights_of(n.y)[row + i] = h[v].template norm<RMS>(mean, factor, w, b);
    }
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_norm(args, [&](auto n, auto rms) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(n.x)>>;
    constexpr bool RMS = decltype(rms)::value;
    if (!in_eights(n)) return int{cudaErrorNotSupported};
    auto start = [&](auto v) {
      constexpr int V = decltype(v)::value;
      unsigned threads = (n.width / 8 + V * 32 - 1) / (V * 32) * 32;
      return int{launch<one_pass<T, RMS, V>>({dim3(n.rows), threads, sizeof(float[2][WARPS])},
                                             args->stream, n)};
    };
    if (n.width <= 8 * 256) return start(std::integral_constant<int, 1>{});
    if (n.width <= 8 * 1024) return start(std::integral_constant<int, 2>{});
    if (n.width <= 8 * 128 * WARPS) return start(std::integral_constant<int, 4>{});
    return int{cudaErrorNotSupported};
  });
}
