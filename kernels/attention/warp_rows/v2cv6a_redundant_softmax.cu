/* All WMMA, 16 rows a warp, and every lane does the whole softmax: the anti-pattern.

   Four warps own 16 rows each; the other four only help to load. For 16 keys at a time: scores to the
   warp's scratch, softmax, probabilities back as a fragment, output loaded, multiplied into and stored
   again. The 16x16 softmax is 256 exponentials in each of 32 lanes, where 8 a lane would do: XU
   instructions are 32 times the useful ones, in a chain of LDS, FADD, MUFU and STS that nothing
   overlaps. short_scoreboard leads; the tensor pipe is under 1 %.

   What came: the tensor pipe is at 0.4 % and XU does 34 times the useful work. But barrier leads, with
   45 %: the four warps without rows wait there all the while and count as much as those that work.
   With twice the tensor instructions of v2cv5 it is 3 % slower.

   after: v2cv5      arch: 80+
   moves: inst_matrix~2x inst_exp~1x
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

// Scores of rows row … row+15 and 16 keys become probabilities in p; statistics follow.
template <int D>
__device__ __forceinline__ void softmax(const Attention& a, Shared<D>& m, int row, int query,
                                        int key) {
  int lane = threadIdx.x % 32;
  for (int r = 0; r < ROWS; ++r) {
    float old = m.stats.max[row + r], max = old, sum = 0.0f, mine = 0.0f;
    for (int col = 0; col < 16; ++col)
      if (a.sees(query + r, key + col)) max = fmaxf(max, *m.s.at(row + r, col) * a.scale);
    for (int col = 0; col < 16; ++col) {
      float x = *m.s.at(row + r, col) * a.scale - max;
      float p = exp_approx(a.sees(query + r, key + col) ? x : -INFINITY);
      sum += p;
      if (lane == col) mine = p;
    }
    float correction = exp_approx(old - max), total = m.stats.sum[row + r] * correction + sum;
    __syncwarp();  // everybody has read the row's statistics
    if (lane < 16) *m.p.at(row + r, lane) = __float2half(mine);
    if (lane == 0) {
      m.stats.max[row + r] = max;
      m.stats.sum[row + r] = total;
      m.stats.correction[row + r] = correction;
    }
  }
}

template <int D>
__global__ void __launch_bounds__(THREADS, 1) v2cv6a(Attention a) {
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
    return launch<v2cv6a<D>>({dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(Shared<D>)},
                             args->stream, a);
  });
}
