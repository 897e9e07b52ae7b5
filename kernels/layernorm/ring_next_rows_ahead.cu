/* Blocks that stay, the next rows on their way while one is worked on.

   A block of onepass loads, waits, computes and stores; while it reduces, it asks DRAM for nothing,
   and only the other blocks of the SM do. Here as many blocks as fit stay and take rows in turn. Each
   thread copies its own eights of the next rows into a ring in shared memory (cp.async: no register
   holds them, and no barrier is needed, for nobody else reads them), and keeps its part of w and b in
   registers for all rows: only x and r are loaded again.

   after: onepass      arch: 80+
   moves: inst_global_load<0.2x inst_async_copy>1x waves<1.01x
   budget: regs=128 smem=200K spills=0 stack=0
*/
#include "norm.cuh"
#include "../common/ptx.cuh"

constexpr int STAGES = 3;

template <class T, int THREADS, int V>
struct Ring {
  Eight<T> x[STAGES][V][THREADS], r[STAGES][V][THREADS];
  float scratch[2][2][THREADS / 32];  // of even and odd rows: one barrier a sum is then enough
};

template <class T, bool RMS, int THREADS, int V>
__global__ void __launch_bounds__(THREADS) ring(Norm<T> n) {
  auto& m = shared_memory<Ring<T, THREADS, V>>();
  constexpr int WARPS = THREADS / 32;
  const int eights = n.width / 8, t = threadIdx.x;
  auto fetch = [&](int row, int slot) {
    if (row < n.rows)
#pragma unroll
      for (int v = 0, i = t; v < V; ++v, i += THREADS)
        if (i < eights) {
          size_t at = static_cast<size_t>(row) * eights + i;
          cp_async<16, Cache::L2_ONLY>(&m.x[slot][v][t], eights_of(n.x) + at, true);
          cp_async<16, Cache::L2_ONLY>(&m.r[slot][v][t], eights_of(n.r) + at, true);
        }
    cp_async_commit();  // an empty group past the last row
  };

  for (int s = 0; s < STAGES - 1; ++s) fetch(blockIdx.x + s * gridDim.x, s);
  Eight<T> w[V], b[V];
#pragma unroll
  for (int v = 0, i = t; v < V; ++v, i += THREADS)
    if (i < eights) {
      b[v] = w[v] = eights_of(n.w)[i];
      if (!RMS) b[v] = eights_of(n.b)[i];
    }
  int slot = 0, odd = 0;
  for (int row = blockIdx.x; row < n.rows; row += gridDim.x, odd ^= 1) {
    fetch(row + (STAGES - 1) * gridDim.x, (slot + STAGES - 1) % STAGES);
    cp_async_wait<STAGES - 1>();
    const size_t at = static_cast<size_t>(row) * eights;
    Eight<T> h[V];
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int v = 0, i = t; v < V; ++v, i += THREADS)
      if (i < eights) {
        h[v] = m.x[slot][v][t];
        sum += h[v].add(m.r[slot][v][t]);
        eights_of(n.h)[at + i] = h[v];
      }
    float mean = RMS ? 0.0f : block_sum(sum, m.scratch[odd][0], WARPS) / n.width;
#pragma unroll
    for (int v = 0, i = t; v < V; ++v, i += THREADS)
      if (i < eights) squares += h[v].squares(mean);
    float factor = rsqrtf(block_sum(squares, m.scratch[odd][1], WARPS) / n.width + n.eps);
#pragma unroll
    for (int v = 0, i = t; v < V; ++v, i += THREADS)
      if (i < eights) eights_of(n.y)[at + i] = h[v].template norm<RMS>(mean, factor, w[v], b[v]);
    slot = (slot + 1) % STAGES;
  }
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_norm(args, [&](auto n, auto rms) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(n.x)>>;
    constexpr bool RMS = decltype(rms)::value;
    if (!in_eights(n)) return int{cudaErrorNotSupported};
    auto start = [&](auto threads, auto v) {
      constexpr int THREADS = decltype(threads)::value, V = decltype(v)::value;
      constexpr auto KERNEL = ring<T, RMS, THREADS, V>;
      int blocks = 0;
      if (int e = resident_blocks<KERNEL>(THREADS, sizeof(Ring<T, THREADS, V>), &blocks)) return e;
      unsigned grid = n.rows < blocks ? n.rows : blocks;
      return int{
          launch<KERNEL>({dim3(grid), THREADS, sizeof(Ring<T, THREADS, V>)}, args->stream, n)};
    };
    using std::integral_constant;
    if (n.width <= 8 * 96)
      return start(integral_constant<int, 96>{}, integral_constant<int, 1>{});
    if (n.width <= 8 * 512)
      return start(integral_constant<int, 256>{}, integral_constant<int, 2>{});
    if (n.width <= 8 * 2048)
      return start(integral_constant<int, 512>{}, integral_constant<int, 4>{});
    return int{cudaErrorNotSupported};
  });
}
