// Scores, softmax and output through shared memory, both products as WMMA tiles, for M rows a block.
#pragma once

#include "../../common/wmma.cuh"

constexpr int N = 32;  // keys a tile

template <int M>
constexpr int THREADS = M / 16 * 2 * 32;  // two warps for every 16 rows

template <int D, int M>
struct Shared {
  Tile<half, M, D, Padded> q;
  Tile<half, N, D, Padded> k, v;
  Tile<float, M, N, Padded> s;
  Tile<half, M, N, Padded> p;
  Tile<float, M, D, Padded> product, out;
  float max[M], sum[M], correction[M];
};

template <int D, int M>
__device__ __forceinline__ void wmma_block(const Attention& a) {
  auto& m = shared_memory<Shared<D, M>>();
  int t = threadIdx.x, first = blockIdx.x * M, head = blockIdx.y;
  int row = t / 32 / 2 * 16, side = t / 32 % 2;  // of this warp
  Accumulator acc;

  load_elements<THREADS<M>>(m.q, head_of<D>(a.q, a, head), first, a.length);
  for (int i = t; i < M * D; i += THREADS<M>) *m.out.at(i / D, i % D) = 0.0f;
  if (t < M) m.max[t] = -INFINITY, m.sum[t] = 0.0f;

  for (int key = 0; key < a.keys(first + M); key += N) {
    __syncthreads();  // the tile before is used up
    load_elements<THREADS<M>>(m.k, head_of<D>(a.k, a, head), key, a.length);
    load_elements<THREADS<M>>(m.v, head_of<D>(a.v, a, head), key, a.length);
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

    for (int i = t; i < M * D; i += THREADS<M>) {
      float& out = *m.out.at(i / D, i % D);
      out = out * m.correction[i / D] + *m.product.at(i / D, i % D);
    }
  }

  // A thread wrote the elements of `out` that it reads here; `sum` is older than the last barrier.
  half* o = head_of<D>(a.o, a, head);
  for (int i = t; i < M * D; i += THREADS<M>)
    if (first + i / D < a.length)
      o[static_cast<size_t>(first) * D + i] = __float2half(*m.out.at(i / D, i % D) / m.sum[i / D]);
}
