/* Tensor cores through WMMA; scores, probabilities and products through shared memory.

   v1 with its two products as 16x16x16 WMMA tiles. WMMA does not say which lane holds what, so the
   scores go to shared memory for the softmax, the probabilities come back as halves, and P V goes to
   a second output that is added to the first. Tensor instructions appear, FFMA all but vanish, and
   the products take a few percent of the time. The rest is waiting: six barriers a tile, and between
   two of them 32 threads of 128 do the softmax. barrier leads the stalls; a few times faster than v1
   and nowhere near the tensor pipe.

   What came: 1.5 times, tensor pipe below 1 %, barriers 17 % of the warps' time, which was 3 %. They do
   not lead: the loads that nothing overlaps do, with 48 %, hidden in v1 behind arithmetic that is gone.

   after: v1      fixes: tensor-idle      arch: 80+      budget: regs=128 smem=75K spills=0 stack=0
   moves: inst_matrix>1x stall_barrier>2x inst_ffma<0.1x
*/
#include "../../common/wmma.cuh"

constexpr int M = 32, N = 32, WARPS = M / 16 * 2, THREADS = 32 * WARPS;

template <int D>
struct Shared {
  Tile<half, M, D, Padded> q;
  Tile<half, N, D, Padded> k, v;
  Tile<float, M, N, Padded> s;
  Tile<half, M, N, Padded> p;
  Tile<float, M, D, Padded> product, out;
  float max[M], sum[M], correction[M];
};

template <int D>
__global__ void __launch_bounds__(THREADS) v2(Attention a) {
  auto& m = shared_memory<Shared<D>>();
  int t = threadIdx.x, first = blockIdx.x * M, head = blockIdx.y;
  int row = t / 32 / 2 * 16, side = t / 32 % 2;  // of this warp
  Accumulator acc;

  load_elements<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length);
  for (int i = t; i < M * D; i += THREADS) *m.out.at(i / D, i % D) = 0.0f;
  if (t < M) m.max[t] = -INFINITY, m.sum[t] = 0.0f;

  for (int key = 0; key < a.keys(first + M); key += N) {
    __syncthreads();  // the tile before is used up
    load_elements<THREADS>(m.k, head_of<D>(a.k, a, head), key, a.length);
    load_elements<THREADS>(m.v, head_of<D>(a.v, a, head), key, a.length);
    __syncthreads();

    wmma::fill_fragment(acc, 0.0f);
    multiply_add<RowsAreN>(acc, m.q, m.k, row, side * 16, D);
    store(m.s, acc, row, side * 16);
    __syncthreads();

    if (t < M) {
      float max = m.max[t], sum = 0.0f;
      for (int col = 0; col < N; ++col) {
        float& s = *m.s.at(t, col);
        s = a.sees(first + t, key + col) ? s * a.scale : -INFINITY;
        max = fmaxf(max, s);
      }
      for (int col = 0; col < N; ++col) {
        float p = exp_approx(*m.s.at(t, col) - max);
        sum += p;
        *m.p.at(t, col) = __float2half(p);
      }
      m.correction[t] = exp_approx(m.max[t] - max);
      m.sum[t] = m.sum[t] * m.correction[t] + sum;
      m.max[t] = max;
    }
    __syncthreads();

    for (int col = side * (D / 2); col < (side + 1) * (D / 2); col += 16) {
      wmma::fill_fragment(acc, 0.0f);
      multiply_add<RowsAreK>(acc, m.p, m.v, row, col, N);
      store(m.product, acc, row, col);
    }
    __syncthreads();

    for (int i = t; i < M * D; i += THREADS) {
      float& out = *m.out.at(i / D, i % D);
      out = out * m.correction[i / D] + *m.product.at(i / D, i % D);
    }
  }

  // A thread wrote the elements of `out` that it reads here; `sum` is older than the last barrier.
  half* o = head_of<D>(a.o, a, head);
  for (int i = t; i < M * D; i += THREADS)
    if (first + i / D < a.length)
      o[static_cast<size_t>(first) * D + i] = __float2half(*m.out.at(i / D, i % D) / m.sum[i / D]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return launch<v2<D>>({dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(Shared<D>)},
                         args->stream, a);
  });
}
