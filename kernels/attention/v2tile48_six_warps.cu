/* 48 rows and 6 warps a block: more reuse of K and V, little gained.

   v2 with M = 48. Each K and V tile serves half as many blocks more rows, so bytes from L2 fall by a
   third and blocks by a third. Waiting stays: the same six barriers a tile, now for 192 threads of
   which 48 do the softmax. Shared memory a block grows by 40 %, which costs blocks per SM, and 512
   rows are 10.67 blocks of 48, so the last one of each head is mostly padding.

   192 threads do not divide a tile of 2048 elements. The forerunner took 2048 / 192 = 10 elements a
   thread and so never loaded rows 30 and 31 of any tile (error 1.5); here every loop strides by the
   thread count until the tile is done.

   after: v2      fixes-not: barrier-wait      arch: 80+
   budget: regs=128 smem=95K spills=0 stack=0
*/
#include <mma.h>

#include "../common/tile.cuh"

using namespace nvcuda;

constexpr int M = 48, N = 32, WARPS = M / 16 * 2, THREADS = 32 * WARPS;
using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;
using Left = wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major>;
template <class ORDER>
using Right = wmma::fragment<wmma::matrix_b, 16, 16, 16, half, ORDER>;

template <int D>
struct Shared {
  Tile<half, M, D, Padded> q;
  Tile<half, N, D, Padded> k, v;
  Tile<float, M, N, Padded> s;
  Tile<half, M, N, Padded> p;
  Tile<float, M, D, Padded> product, out;
  float max[M], sum[M], correction[M];
};

// c = a b over `depth`; A starts at (row, 0) of `a`, the rows of B's tile are n or k as ORDER says.
template <class ORDER, class A, class B>
__device__ __forceinline__ void multiply(Accumulator& c, const A& a, const B& b, int row, int col,
                                         int depth) {
  constexpr bool ROWS_ARE_N = std::is_same_v<ORDER, wmma::col_major>;
  wmma::fill_fragment(c, 0.0f);
  for (int k = 0; k < depth; k += 16) {
    Left left;
    Right<ORDER> right;
    wmma::load_matrix_sync(left, a.at(row, k), A::STRIDE);
    wmma::load_matrix_sync(right, ROWS_ARE_N ? b.at(col, k) : b.at(k, col), B::STRIDE);
    wmma::mma_sync(c, left, right, c);
  }
}

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

    multiply<wmma::col_major>(acc, m.q, m.k, row, side * 16, D);
    wmma::store_matrix_sync(m.s.at(row, side * 16), acc, m.s.STRIDE, wmma::mem_row_major);
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
      multiply<wmma::row_major>(acc, m.p, m.v, row, col, N);
      wmma::store_matrix_sync(m.product.at(row, col), acc, m.product.STRIDE, wmma::mem_row_major);
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
    return launch<v2tile48<D>>(dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(Shared<D>),
                               args->stream, 1, a);
  });
}
