/* 48 rows and 6 warps a block: more reuse of K and V, little gained.

   v2 with M = 48. Each K and V tile serves half as many blocks more rows, so bytes from L2 fall by a
   third and blocks by a third. Waiting stays: the same six barriers a tile, now for 192 threads of
   which 48 do the softmax. Shared memory a block grows by 40 %, which costs blocks per SM, and 512
   rows are 10.67 blocks of 48, so the last one of each head is mostly padding.

   192 threads do not divide a tile of 2048 elements. The forerunner took 2048 / 192 = 10 elements a
   thread and so never loaded rows 30 and 31 of any tile (error 1.5); here every loop strides by the
   thread count until the tile is done.

   after: v2      fixes-not: barrier-wait      arch: 80+
   moves: blocks_per_sm<0.9x
   budget: regs=128 smem=95K spills=0 stack=0
*/
#include "../../common/wmma.cuh"

constexpr int M = 48, N = 32, WARPS = M / 16 * 2, THREADS = 32 * WARPS;

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
__global__ void __launch_bounds__(THREADS) v2tile48(Attention a) {
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
    return launch<v2tile48<D>>({dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(Shared<D>)},
                               args->stream, a);
  });
}
