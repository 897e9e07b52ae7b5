/* Q K^T by WMMA on four of eight warps; the rest as before.

   Scores come from the tensor cores, 16 rows a warp, so four warps have none and wait at the barrier
   that the exchange of scores now needs. Shuffles and the FFMA of the scores go; the redundant softmax
   and the scalar P V stay, and they were most of the time. Tensor instructions appear, barrier stalls
   rise.

   What came: 3.3 times, so scores and their shuffles were most of the time and not the rest. Barriers
   rise from nothing to 2 %; short-scoreboard is gone, for the shuffles were what waited there.

   after: v2cv3      fixes: short-scoreboard      arch: 80+
   moves: inst_matrix>1x inst_shuffle<0.1x stall_barrier>1.2x
   budget: regs=128 smem=140K spills=0 stack=0
*/
#include "v2c.cuh"

using namespace v2c;
constexpr int ROWS = M / WARPS;  // a warp

template <int D>
struct Shared {
  Tile<half, M, D, Padded> q;
  Tile<half, N, D, Padded> k, v;
  Tile<float, M, N, Padded> s;
  Tile<float, M, D, Padded> out;
  Stats<M> stats;
};

template <int D>
__global__ void __launch_bounds__(THREADS, 1) v2cv5(Attention a) {
  auto& m = shared_memory<Shared<D>>();
  int warp = threadIdx.x / 32, first = blockIdx.x * M, head = blockIdx.y;
  int row = warp * ROWS;  // of this warp

  load_rows<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length);
  clear<ROWS, D>(m.out, m.stats, row);

  for (int key = 0; key < a.keys(first + M); key += N) {
    __syncthreads();  // the tile before is used up
    load_rows<THREADS>(m.k, head_of<D>(a.k, a, head), key, a.length);
    load_rows<THREADS>(m.v, head_of<D>(a.v, a, head), key, a.length);
    __syncthreads();

    for (int col = 0; warp < M / 16 && col < N; col += 16) {  // warps 4 … 7 have no rows here
      Accumulator acc;
      wmma::fill_fragment(acc, 0.0f);
      multiply_add<RowsAreN>(acc, m.q, m.k, 16 * warp, col, D);
      store(m.s, acc, 16 * warp, col);
    }
    __syncthreads();

    for (int r = row; r < row + ROWS; ++r) {
      redundant_softmax_row(a, m.s, m.stats, r, first + r, key);
      scalar_pv_row<D>(m.s, m.v, m.out, m.stats, r);
    }
  }
  store_rows<ROWS, D>(a, head_of<D>(a.o, a, head), m.out, m.stats, row, first + row);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return launch<v2cv5<D>>({dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(Shared<D>)},
                            args->stream, a);
  });
}
