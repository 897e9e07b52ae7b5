/* A warp a row: sums are shuffles, and nobody waits for anybody.

   The blocks of onepass meet at a barrier for each sum. A warp that has a row to itself needs none: as
   soon as its loads are there it goes on, beside warps that still wait. A lane holds up to 16 eights
   of its row, 4096 elements a warp: there are no registers for wider rows.

   after: onepass      arch: 80+
   moves: inst_barrier<0.1x
   case: LN768
   budget: regs=255 smem=1K spills=0 stack=0
*/
#include "warp.cuh"

// V eights a lane, each a struct that is copied pair by pair.
template <class T, bool RMS, int V>
__global__ void __launch_bounds__(32 * ROWS) warp_rows(Norm<T> n) {
  norm_warp_rows<RMS, V>(
      n, [](const T* p, size_t i) { return eights_of(p)[i]; },
      [](T* p, size_t i, const Eight<T>& eight) { eights_of(p)[i] = eight; });
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
