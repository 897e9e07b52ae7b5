/* cp.async: the next K and V tiles travel while this one is used.

   A ring of two tiles. The wait at the top of the loop is for a copy that has had the whole tile
   before to arrive, so the stall on global memory (long_scoreboard) falls by half or more; what a
   warp waits for now is shared memory in P V. Loads skip the registers: LDG and STS become LDGSTS.
   8 KB more shared memory: three blocks per SM instead of four on an L4, which B does not notice.

   after: stage0      arch: 80+      budget: regs=128 smem=64K spills=0 stack=0
   moves: stall_long_scoreboard<0.5x
*/
#include "../../common/cp_async.cuh"
#include "stage.cuh"

using namespace stage;
constexpr int STAGES = 2;

template <int D>
struct Shared {
  Tile<half, M, D> q;
  Tile<half, N, D> k[STAGES], v[STAGES];
  Tile<float, M, N> s;
  Tile<float, M, D> out;
};

template <int D>
__global__ void __launch_bounds__(THREADS, 5) stage1(Attention a) {
  auto& m = shared_memory<Shared<D>>();
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * M, head = blockIdx.y;
  const half *k = head_of<D>(a.k, a, head), *v = head_of<D>(a.v, a, head);
  int tiles = ceil_div(a.keys(first + M), N);
  auto fetch = [&](int tile) {
    if (tile < tiles) {
      copy_rows<THREADS>(m.k[tile % STAGES], k, tile * N, a.length, threadIdx.x);
      copy_rows<THREADS>(m.v[tile % STAGES], v, tile * N, a.length, threadIdx.x);
    }
    cp_async_commit();  // an empty group past the last tile
  };

  Softmax state;
  clear(m.out, D);
  copy_rows<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length, threadIdx.x);
  for (int tile = 0; tile < STAGES - 1; ++tile) fetch(tile);

  for (int tile = 0; tile < tiles; ++tile) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // this tile is here, and the one before is used up
    fetch(tile + STAGES - 1);
    auto& tile_v = m.v[tile % STAGES];
    scores(m.q, m.k[tile % STAGES], m.s, D);
    __syncthreads();

#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      int row = warp + WARPS * i;
      float p =
          softmax_row(a, state, i, m.out, *m.s.at(row, lane), row, first + row, tile * N + lane, D);
      *m.s.at(row, lane) =
          p;  // this lane's score is read; the row is this warp's until the barrier
      __syncwarp();
      scalar_pv(m.s, tile_v, m.out, row, D);
    }
  }
  store(a, state, m.out, head_of<D>(a.o, a, head), first, D);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return launch<stage1<D>>({dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(Shared<D>)},
                             args->stream, a);
  });
}
