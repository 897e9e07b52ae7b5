/* The same with the softmax spread over the lanes: one edit.

   v2cv6a with two lanes a row and eight scores a lane, instead of all 256 in every lane. XU
   instructions fall by nearly 32 times, the chain through shared memory to an eighth or less, and the
   kernel gets several times faster; the profiler shows the round trips of scores and output through
   shared memory next.

   after: v2cv6a      fixes: redundant-exp      arch: 80+
   moves: inst_exp<0.05x
   budget: regs=255 smem=130K spills=0 stack=0
*/
#include "v2c.cuh"

using namespace v2c;
constexpr int ROWS = 16, WORKERS = M / ROWS;  // rows a warp, warps that have rows

template <int D>
struct Shared {
  Tile<half, M, D, Padded> q;
  Tile<half, N, D, Padded> k, v;
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
__global__ void __launch_bounds__(THREADS, 1) v2cv6b(Attention a) {
  auto& m = shared_memory<Shared<D>>();
  int warp = threadIdx.x / 32, first = blockIdx.x * M, head = blockIdx.y;
  int row = warp * ROWS;  // of this warp
  Accumulator acc;

  load_rows<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length);
  if (warp < WORKERS) clear<ROWS, D>(m.out, m.stats, row);

  for (int tile = 0; tile < a.keys(first + M); tile += N) {
    __syncthreads();  // the tile before is used up
    load_rows<THREADS>(m.k, head_of<D>(a.k, a, head), tile, a.length);
    load_rows<THREADS>(m.v, head_of<D>(a.v, a, head), tile, a.length);
    __syncthreads();

    for (int key = 0; warp < WORKERS && key < N; key += 16) {
      wmma::fill_fragment(acc, 0.0f);
      multiply_add<RowsAreN>(acc, m.q, m.k, row, key, D);
      store(m.s, acc, row, 0);
      __syncwarp();
      softmax<D>(a, m, row, first + row, tile + key);
      __syncwarp();
      rescale<ROWS, D>(m.out, m.stats, row);
      __syncwarp();
      multiply_into<D>(m.out, m.p, m.v, row, key);
      __syncwarp();
    }
  }
  if (warp < WORKERS)
    store_rows<ROWS, D>(a, head_of<D>(a.o, a, head), m.out, m.stats, row, first + row);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return launch<v2cv6b<D>>({dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(Shared<D>)},
                             args->stream, a);
  });
}
