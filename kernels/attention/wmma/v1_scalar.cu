/* Fused, scalar fp16 from shared memory; one thread a row does the softmax.

   32 queries a block, tiles of 32 keys, 128 threads. Scores never reach global memory: that is the
   whole idea, and from here on DRAM is idle. Every multiply-add fetches its operands from shared
   memory as halves and converts them, so the load/store unit is what runs: short_scoreboard and
   mio_throttle lead, FFMA counts 2 S² D a head, tensor instructions 0. For the softmax 96 of 128
   threads wait at a barrier.

   What came: long_scoreboard leads with 32 %, wait has 29 %, and a third of the time instructions issue.
   Shared memory answers in time; it is the loads of each tile that nothing overlaps, and three
   instructions around every multiply-add.

   arch: 80+      budget: regs=128 smem=46K spills=0 stack=0
*/
#include "../../common/tile.cuh"

constexpr int M = 32, N = 32, THREADS = 128;

template <int D>
struct Shared {
  Tile<half, M, D, Padded> q;
  Tile<half, N, D, Padded> k, v;
  float s[M][N + 1];  // + 1: a thread walks a row, its neighbours the same column of other rows
  float out[M][D];
  float max[M], sum[M], correction[M];
};

template <int D>
__global__ void __launch_bounds__(THREADS) v1(Attention a) {
  auto& m = shared_memory<Shared<D>>();
  int t = threadIdx.x, first = blockIdx.x * M, head = blockIdx.y;

  load_elements<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length);
  for (int i = t; i < M * D; i += THREADS) m.out[i / D][i % D] = 0.0f;
  if (t < M) m.max[t] = -INFINITY, m.sum[t] = 0.0f;

  for (int key = 0; key < a.keys(first + M); key += N) {
    __syncthreads();  // the tile before is used up
    load_elements<THREADS>(m.k, head_of<D>(a.k, a, head), key, a.length);
    load_elements<THREADS>(m.v, head_of<D>(a.v, a, head), key, a.length);
    __syncthreads();

    int row = t / 4;
    for (int col = t % 4; col < N; col += 4) {
      float dot = 0.0f;
      for (int d = 0; d < D; ++d)
        dot += __half2float(*m.q.at(row, d)) * __half2float(*m.k.at(col, d));
      m.s[row][col] = a.sees(first + row, key + col) ? dot * a.scale : -INFINITY;
    }
    __syncthreads();

    if (t < M) {
      float max = m.max[t], sum = 0.0f;
      for (int col = 0; col < N; ++col) max = fmaxf(max, m.s[t][col]);
      for (int col = 0; col < N; ++col) sum += m.s[t][col] = exp_approx(m.s[t][col] - max);
      m.correction[t] = exp_approx(m.max[t] - max);
      m.sum[t] = m.sum[t] * m.correction[t] + sum;
      m.max[t] = max;
    }
    __syncthreads();

    for (int i = t; i < M * D; i += THREADS) {
      float sum = m.out[i / D][i % D] * m.correction[i / D];
      for (int col = 0; col < N; ++col) sum += m.s[i / D][col] * __half2float(*m.v.at(col, i % D));
      m.out[i / D][i % D] = sum;
    }
  }

  // A thread wrote the elements of `out` that it reads here; `sum` is older than the last barrier.
  half* o = head_of<D>(a.o, a, head);
  for (int i = t; i < M * D; i += THREADS)
    if (first + i / D < a.length)
      o[static_cast<size_t>(first) * D + i] = __float2half(m.out[i / D][i % D] / m.sum[i / D]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return launch<v1<D>>({dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(Shared<D>)},
                         args->stream, a);
  });
}
