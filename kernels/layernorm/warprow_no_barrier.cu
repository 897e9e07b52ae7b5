/* A warp a row: sums are shuffles, and nobody waits for anybody.

   The blocks of onepass meet at a barrier for each sum. A warp that has a row to itself needs none: as
   soon as its loads are there it goes on, beside warps that still wait. A lane holds up to 16 eights
   of its row, 4096 elements a warp: there are no registers for wider rows.

   after: onepass      arch: 80+
   moves: inst_barrier<0.1x
   case: LN768
   budget: regs=255 smem=1K spills=0 stack=0
*/
#include "norm.cuh"

constexpr int ROWS = 4;  // a block

__device__ __forceinline__ float sum_of_lanes(float x) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
  return x;
}

// V eights a lane.
template <class T, bool RMS, int V>
__global__ void __launch_bounds__(32 * ROWS) warp_rows(Norm<T> n) {
  const int index = blockIdx.x * ROWS + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (index >= n.rows) return;
  const int eights = n.width / 8;
  const size_t row = static_cast<size_t>(index) * eights;
  Eight<T> h[V], r[V];
#pragma unroll
  for (int v = 0, i = lane; v < V; ++v, i += 32)
    if (i < eights) h[v] = eights_of(n.x)[row + i], r[v] = eights_of(n.r)[row + i];
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int v = 0, i = lane; v < V; ++v, i += 32)
    if (i < eights) {
      sum += h[v].add(r[v]);
      eights_of(n.h)[row + i] = h[v];
    }
  float mean = RMS ? 0.0f : sum_of_lanes(sum) / n.width;
#pragma unroll
  for (int v = 0, i = lane; v < V; ++v, i += 32)
    if (i < eights) squares += h[v].squares(mean);
  float factor = rsqrtf(sum_of_lanes(squares) / n.width + n.eps);
#pragma unroll
  for (int v = 0, i = lane; v < V; ++v, i += 32)
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
      return int{launch<warp_rows<T, RMS, decltype(v)::value>>(
          {dim3((n.rows + ROWS - 1) / ROWS), 32 * ROWS, 0}, args->stream, n)};
    };
    if (n.width <= 256 * 4) return start(std::integral_constant<int, 4>{});
    if (n.width <= 256 * 16) return start(std::integral_constant<int, 16>{});
    return int{cudaErrorNotSupported};  // a lane has no registers for more
  });
}
