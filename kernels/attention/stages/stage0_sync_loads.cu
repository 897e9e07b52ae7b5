/* The stage family: tensor cores for Q K^T, everything else through shared memory, loads waited for.

   32 queries a block, tiles of 32 keys, 4 warps. Each tile: load K and V, wait, scores on the tensor
   cores into shared memory, softmax with one score a lane, P V by scalar multiply-adds out of shared
   memory. Nothing runs while a tile is on its way, so each tile costs one trip to L2 (DRAM when
   cold) in full: long_scoreboard stands among the leading stalls, beside short_scoreboard from P V.

   arch: 80+      budget: regs=128 smem=48K spills=0 stack=0
*/
#include "stage.cuh"

using namespace stage;

template <int D>
struct Shared {
  Tile<half, M, D> q;
  Tile<half, N, D> k, v;
  Tile<float, M, N> s;
  Tile<float, M, D> out;
};

template <int D>
__global__ void __launch_bounds__(THREADS, 5) stage0(Attention a) {
  auto& m = shared_memory<Shared<D>>();
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * M, head = blockIdx.y;
  const half *k = head_of<D>(a.k, a, head), *v = head_of<D>(a.v, a, head);
  int tiles = ceil_div(a.keys(first + M), N);

  Softmax state;
  clear(m.out, D);
  load_rows<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length);

  for (int tile = 0; tile < tiles; ++tile) {
    __syncthreads();  // the tile before is used up
    load_rows<THREADS>(m.k, k, tile * N, a.length);
    load_rows<THREADS>(m.v, v, tile * N, a.length);
    __syncthreads();
    scores(m.q, m.k, m.s, D);
    __syncthreads();

#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      int row = warp + WARPS * i;
      float p =
          softmax_row(a, state, i, m.out, *m.s.at(row, lane), row, first + row, tile * N + lane, D);
      *m.s.at(row, lane) =
          p;  // this lane's score is read; the row is this warp's until the barrier
      __syncwarp();
      scalar_pv(m.s, m.v, m.out, row, D);
    }
  }
  store(a, state, m.out, head_of<D>(a.o, a, head), first, D);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return launch<stage0<D>>({dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(Shared<D>)},
                             args->stream, a);
  });
}
