/* onepass with loads of 16 bytes: one instruction where there were four.

   The eights of onepass are structs of four pairs, and a struct is copied pair by pair: LDG.E, four bytes
   a lane, four times over the same sectors, in L1's queue each time. Here x, r, w and b come and h and y
   go as uint4 (LDG.E.128, STG.E.128). w and b are asked for before the second sum is waited for.

   What came: 50.8 us after 59.6 at LN4096 with 0.25 of the loads, and 0.93 of the instructions: a copy
   takes 49.0. At LN768 51.6 (a copy 48.7), at RMS4096 51.4 (49.2), at LN16384 60.6 (49.5; Triton 53.5).

   after: onepass      arch: 80+
   moves: inst_global_load<0.3x      moves-not: instructions<0.9x
   budget: regs=128 smem=1K spills=0 stack=0
*/
#include "wide.cuh"

constexpr int WARPS = 16;

// A thread has V eights; the block as many threads as the row needs.
template <class T, bool RMS, int V>
__global__ void __launch_bounds__(32 * WARPS) wide_row(Norm<T> n) {
  auto& scratch = shared_memory<float[2][WARPS]>();
  const int eights = n.width / 8, warps = blockDim.x / 32, step = blockDim.x;
  const size_t row = static_cast<size_t>(blockIdx.x) * eights;
  Eight<T> h[V], r[V], w[V], b[V];
#pragma unroll
  for (int v = 0, i = threadIdx.x; v < V; ++v, i += step)
    if (i < eights) h[v] = load_eight(n.x, row + i), r[v] = load_eight(n.r, row + i);
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int v = 0, i = threadIdx.x; v < V; ++v, i += step)
    if (i < eights) {
      sum += h[v].add(r[v]);
      store_eight(n.h, row + i, h[v]);
    }
  float mean = RMS ? 0.0f : block_sum(sum, scratch[0], warps) / n.width;
#pragma unroll
  for (int v = 0, i = threadIdx.x; v < V; ++v, i += step)
    if (i < eights) {
      w[v] = load_eight(n.w, i);
      if (!RMS) b[v] = load_eight(n.b, i);
      squares += h[v].squares(mean);
    }
  float factor = rsqrtf(block_sum(squares, scratch[1], warps) / n.width + n.eps);
#pragma unroll
  for (int v = 0, i = threadIdx.x; v < V; ++v, i += step)
    if (i < eights) store_eight(n.y, row + i, h[v].template norm<RMS>(mean, factor, w[v], b[v]));
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_norm(args, [&](auto n, auto rms) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(n.x)>>;
    constexpr bool RMS = decltype(rms)::value;
    if (!in_eights(n)) return int{cudaErrorNotSupported};
    auto start = [&](auto v) {
      constexpr int V = decltype(v)::value;
      unsigned threads = (n.width / 8 + V * 32 - 1) / (V * 32) * 32;
      return int{launch<wide_row<T, RMS, V>>({dim3(n.rows), threads, sizeof(float[2][WARPS])},
                                             args->stream, n)};
    };
    if (n.width <= 8 * 256) return start(std::integral_constant<int, 1>{});
    if (n.width <= 8 * 1024) return start(std::integral_constant<int, 2>{});
    if (n.width <= 8 * 128 * WARPS) return start(std::integral_constant<int, 4>{});
    return int{cudaErrorNotSupported};
  });
}
