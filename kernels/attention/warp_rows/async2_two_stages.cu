/* Two tiles in flight, waited for when they are needed.

   v2cv6b with a ring of two tiles and cp.async by all warps: the wait at the top of the loop is for a
   copy that has had the whole tile before to arrive. What v2cv7a promised. long_scoreboard falls by
   half or more, one barrier a tile goes; time falls by what the loads used to cost, which is little
   beside the round trips through shared memory.

   What came: a warp of v2cv6b spent 7 % of its time on loads, too little for the rule
   long-scoreboard to fire, and spends 5 % here. Barriers halve, and time falls by 2 %: there was
   next to nothing to hide.

   after: v2cv6b      arch: 80+
   moves: inst_barrier<0.6x      moves-not: stall_long_scoreboard<0.5x
   budget: regs=255 smem=165K spills=0 stack=0
*/
#include "../../common/cp_async.cuh"
#include "v2c.cuh"

using namespace v2c;
constexpr int ROWS = 16, WORKERS = M / ROWS;  // rows a warp, warps that have rows
constexpr int STAGES = 2;

template <int D>
struct Shared {
  Tile<half, M, D, Padded> q;
  Tile<half, N, D, Padded> k[STAGES], v[STAGES];
  Tile<float, M, 16> s;  // 16 rows a warp: its scratch
  Tile<half, M, 16> p;
  Tile<float, M, D, Padded> out;
  Stats<M> stats;
};

// Scores of rows row … row+15 and 16 keys become probabilities in p; statistics follow. Two lanes
// share a row, eight scores each.
template <int D>
__device__ __forceinline__ void softmax(const Attention& a, Shared<D>& m, int row, int query,
                                        int key) {
  int lane = threadIdx.x % 32, r = lane / 2, left = lane % 2 * 8;
  float x[8], old = m.stats.max[row + r], max = old, sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    bool seen = a.sees(query + r, key + left + i);
    x[i] = seen ? *m.s.at(row + r, left + i) * a.scale : -INFINITY;
    max = fmaxf(max, x[i]);
  }
  max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float p = exp_approx(x[i] - max);
    sum += p;
    *m.p.at(row + r, left + i) = __float2half(p);
  }
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  float correction = exp_approx(old - max), total = m.stats.sum[row + r] * correction + sum;
  __syncwarp();  // everybody has read the rows' statistics
  if (lane % 2 == 0) {
    m.stats.max[row + r] = max;
    m.stats.sum[row + r] = total;
    m.stats.correction[row + r] = correction;
  }
}

template <int D>
__global__ void __launch_bounds__(THREADS, 1) async2(Attention a) {
  auto& m = shared_memory<Shared<D>>();
  int warp = threadIdx.x / 32, first = blockIdx.x * M, head = blockIdx.y;
  int row = warp * ROWS;  // of this warp
  const half *k = head_of<D>(a.k, a, head), *v = head_of<D>(a.v, a, head);
  Accumulator acc;
  auto fetch = [&](int key) {
    if (key < a.keys(first + M)) {
      copy_rows<THREADS>(m.k[key / N % STAGES], k, key, a.length, threadIdx.x);
      copy_rows<THREADS>(m.v[key / N % STAGES], v, key, a.length, threadIdx.x);
    }
    cp_async_commit();  // an empty group past the last tile
  };

  load_rows<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length);
  if (warp < WORKERS) clear<ROWS, D>(m.out, m.stats, row);

  for (int tile = 0; tile < STAGES - 1; ++tile) fetch(tile * N);

  for (int tile = 0; tile < a.keys(first + M); tile += N) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // this tile is here, and the one before is used up
    fetch(tile + (STAGES - 1) * N);
    auto &tile_k = m.k[tile / N % STAGES], &tile_v = m.v[tile / N % STAGES];

    for (int key = 0; warp < WORKERS && key < N; key += 16) {
      wmma::fill_fragment(acc, 0.0f);
      multiply_add<RowsAreN>(acc, m.q, tile_k, row, key, D);
      store(m.s, acc, row, 0);
      __syncwarp();
      softmax<D>(a, m, row, first + row, tile + key);
      __syncwarp();
      rescale<ROWS, D>(m.out, m.stats, row);
      __syncwarp();
      multiply_into<D>(m.out, m.p, tile_v, row, key);
      __syncwarp();
    }
  }
  if (warp < WORKERS)
    store_rows<ROWS, D>(a, head_of<D>(a.o, a, head), m.out, m.stats, row, first + row);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return launch<async2<D>>({dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(Shared<D>)},
                             args->stream, a);
  });
}
