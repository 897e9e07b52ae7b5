/* One multiply-add and one exp2 a score, sums of rows left to the end.

   stage3b scales every score, subtracts the maximum, multiplies by log2(e) and calls ex2: three FP32
   instructions around one XU instruction. With c = scale log2(e) the same is ex2(s c - max c): one
   FFMA. The maximum is taken of unscaled scores, so a negative scale moves its sign into Q. Each lane
   sums the scores it holds, and the quad adds up once after the last tile instead of every tile.
   FMUL and FADD fall by about two a score, XU instructions stay, and time falls by the issue slots
   saved: 5 to 10 %.

   What came: all of it, 5 % at B. The rule non-fused-math, which was to go, never fired: half of the
   SMs have no block, so no pipe is near its peak and the counters name the grid, here as before.

   after: stage3b      arch: 80+
   moves: inst_fp32<0.9x inst_exp~1x
   budget: regs=255 smem=80K spills=0 stack=0
*/
#include "../../common/flash.cuh"

constexpr int M = 64, N = 64, STAGES = 2, THREADS = 128;

template <int D>
struct Shared {
  Tile<half, M, D, Swizzled> q;
  Tile<half, N, D, Swizzled> k[STAGES], v[STAGES];
};

template <int D>
__global__ void __launch_bounds__(THREADS, 1) exp2fold(Attention a) {
  auto& m = shared_memory<Shared<D>>();
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * M, head = blockIdx.y;
  const half *k = head_of<D>(a.k, a, head), *v = head_of<D>(a.v, a, head);
  int tiles = ceil_div(a.keys(first + M), N), row = first + 16 * warp;
  auto fetch = [&](int tile) {
    if (tile < tiles) {
      copy_rows<THREADS>(m.k[tile % STAGES], k, tile * N, a.length, threadIdx.x);
      copy_rows<THREADS>(m.v[tile % STAGES], v, tile * N, a.length, threadIdx.x);
    }
    cp_async_commit();  // an empty group past the last tile
  };

  copy_rows<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length, threadIdx.x);
  for (int tile = 0; tile < STAGES - 1; ++tile) fetch(tile);
  flash::Folded folded(a.scale);
  flash::Rows<D> rows;
  rows.clear();

  for (int tile = 0; tile < tiles; ++tile) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // this tile is here, and the one before is used up
    fetch(tile + STAGES - 1);
    if (tile == 0) rows.load(m.q, 16 * warp, lane), folded.apply_sign(rows.q);

    float s[N / 8][4];
    flash::scores<N, D>(s, rows.q, m.k[tile % STAGES], 0, lane);
    if (flash::at_edge<N>(a, row, tile * N)) flash::mask<N>(a, s, row, tile * N, lane);
    flash::folded_softmax<N>(rows, s, folded.factor);
    flash::pv<N, D>(rows.out, s, m.v[tile % STAGES], 0, lane);
  }
  for (float& sum : rows.sum) sum = flash::quad_sum(sum);
  rows.store(head_of<D>(a.o, a, head), row, a.length, lane);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return launch<exp2fold<D>>({dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(Shared<D>)},
                               args->stream, a);
  });
}
