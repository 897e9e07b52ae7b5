/* Scalar again: a warp a row, one shuffle reduction a score.

   64 rows and 8 warps a block. A score is two multiply-adds a lane, five shuffles and a store by lane
   0; then every lane does the whole softmax of the row, 64 exponentials where two would do; P V reads
   shared memory for every multiply-add. Shuffles and shared memory share one queue, so mio_throttle
   and short_scoreboard lead; XU instructions are 32 times the useful ones; tensor 0. 62 KB of shared
   memory leave one block per SM on an L4, where the 64 blocks of B are 1.10 waves.

   What came: short_scoreboard leads with 48 %, mio_throttle does not show, and the counters name the
   grid first: 64 blocks leave half of an H200's SMs without one. 7.7 times slower than v2.

   after: v2      arch: 80+
   moves: inst_shuffle>10x inst_matrix<0.01x
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
__global__ void __launch_bounds__(THREADS, 1) v2cv3(Attention a) {
  auto& m = shared_memory<Shared<D>>();
  int lane = threadIdx.x % 32, first = blockIdx.x * M, head = blockIdx.y;
  int row = threadIdx.x / 32 * ROWS;  // of this warp

  load_rows<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length);
  clear<ROWS, D>(m.out, m.stats, row);

  for (int key = 0; key < a.keys(first + M); key += N) {
    __syncthreads();  // the tile before is used up
    load_rows<THREADS>(m.k, head_of<D>(a.k, a, head), key, a.length);
    load_rows<THREADS>(m.v, head_of<D>(a.v, a, head), key, a.length);
    __syncthreads();

    for (int r = row; r < row + ROWS; ++r)
      for (int col = 0; col < N; ++col) {
        float dot = 0.0f;
        for (int d = 2 * lane; d < D; d += 64) {
          float2 x = __half22float2(*reinterpret_cast<half2*>(m.q.at(r, d)));
          float2 y = __half22float2(*reinterpret_cast<half2*>(m.k.at(col, d)));
          dot += x.x * y.x + x.y * y.y;
        }
        dot = warp_sum(dot);
        if (lane == 0) *m.s.at(r, col) = dot;
      }
    __syncwarp();

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
    return launch<v2cv3<D>>({dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(Shared<D>)},
                            args->stream, a);
  });
}
