/* A warp a row with loads of 16 bytes: for narrow rows, whose blocks are small.

   A row of 768 is three warps of widerow, which meet twice. A warp that has it to itself asks for three
   eights of x and of r a lane, adds by shuffles and waits for nobody. Wider rows than 2048 are not taken:
   the registers of a warp that holds them leave too few warps beside it.

   after: widerow      arch: 80+      case: LN768
   moves: inst_barrier<0.1x
   budget: regs=168 smem=1K spills=0 stack=0
*/
#include "warp.cuh"
#include "wide.cuh"

// V eights a lane, each one access of 16 bytes.
template <class T, bool RMS, int V>
__global__ void __launch_bounds__(32 * ROWS) wide_warp(Norm<T> n) {
  norm_warp_rows<RMS, V>(
      n, [](const T* p, size_t i) { return load_eight(p, i); },
      [](T* p, size_t i, const Eight<T>& eight) { store_eight(p, i, eight); });
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
