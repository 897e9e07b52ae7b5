/* A warp a row with loads of 16 bytes: for narrow rows, whose blocks are small.

   A row of 768 is three warps of widerow, which meet twice. A warp that has it to itself asks for three
   eights of x and of r a lane, adds by shuffles and waits for nobody. Wider rows than 2048 are not taken:
   the registers of a warp that holds them leave too few warps beside it.

   after: widerow      arch: 80+      case: LN768
   moves: inst_barrier<0.1x
   budget: regs=168 smem=1K spills=0 stack=0
*/
#include "wide.cuh"

constexpr int ROWS = 4;  // a block

__device__ __forceinline__ float sum_of_lanes(float x) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
  return x;
}

// V eights a lane.
template <class T, bool RMS, int V>
__global__ void __launch_bounds__(32 * ROWS) wide_warp(Norm<T> n) {
  const int index = blockIdx.x * ROWS + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (index >= n.rows) return;
  const int eights = n.width / 8;
  const size_t row = static_cast<size_t>(index) * eights;
  Eight<T> h[V], r[V];
#pragma unroll
  for (int v = 0, i = lane; v < V; ++v, i += 32)
    if (i < eights) h[v] = load_eight(n.x, row + i), r[v] = load_eight(n.r, row + i);
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int v = 0, i = lane; v < V; ++v, i += 32)
    if (i < eights) {
      sum += h[v].add(r[v]);
      store_eight(n.h, row + i, h[v]);
    }
  float mean = RMS ? 0.0f : sum_of_lanes(sum) / n.width;
#pragma unroll
  for (int v = 0, i = lane; v < V; ++v, i += 32)
    if (i < eights) squares += h[v].squares(mean);
  float factor = rsqrtf(sum_of_lanes(squares) / n.width + n.eps);
#pragma unroll
  for (int v = 0, i = lane; v < V; ++v, i += 32)
    if (i < eights) {
      Eight<T> w = load_eight(n.w, i), b = w;
      if (!RMS) b = load_eight(n.b, i);
      store_eight(n.y, row + i, h[v].template norm<RMS>(mean, factor, w, b));
    }
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_norm(args, [&](auto n, auto rms) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(n.x)>>;
    constexpr bool RMS = decltype(rms)::value;
    if (!in_eights(n)) return int{cudaErrorNotSupported};
    auto start = [&](auto v) {
      return int{launch<wide_warp<T, RMS, decltype(v)::value>>(
          {dim3((n.rows + ROWS - 1) / ROWS), 32 * ROWS, 0}, args->stream, n)};
    };
    if (n.width <= 256 * 3) return start(std::integral_constant<int, 3>{});
    if (n.width <= 256 * 8) return start(std::integral_constant<int, 8>{});
    return int{cudaErrorNotSupported};
  });
}
