/* The v2c family's blocks: 64 rows of a head per block, tiles of 64 keys, 8 warps.

   The running output is fp32 in shared memory; a row of it, its maximum and its sum belong to one
   warp, which alone reads and writes them.
*/
#pragma once
#include "../../common/wmma.cuh"

namespace v2c {

constexpr int M = 64, N = 64, WARPS = 8, THREADS = 32 * WARPS;

template <int ROWS>
struct Stats {
  float max[ROWS], sum[ROWS], correction[ROWS];
};

// out = 0, max = -inf, sum = 0 for the rows first … first+ROWS-1 of this warp.
template <int ROWS, int D, class U, class S>
__device__ __forceinline__ void clear(U& out, S& stats, int first) {
  int lane = threadIdx.x % 32;
  for (int i = lane; i < ROWS * D; i += 32) *out.at(first + i / D, i % D) = 0.0f;
  if (lane < ROWS) stats.max[first + lane] = -INFINITY, stats.sum[first + lane] = 0.0f;
  __syncwarp();
}

// out[row] *= correction[row] for the rows of this warp.
template <int ROWS, int D, class U, class S>
__device__ __forceinline__ void rescale(U& out, const S& stats, int first) {
  int lane = threadIdx.x % 32;
  for (int i = lane; i < ROWS * D; i += 32)
    *out.at(first + i / D, i % D) *= stats.correction[first + i / D];
}

// o = out / sum for the rows of this warp; `query` is the first of them in the head.
template <int ROWS, int D, class U, class S>
__device__ __forceinline__ void store_rows(const Attention& a, half* o, const U& out,
                                           const S& stats, int first, int query) {
  int lane = threadIdx.x % 32;
  for (int i = lane; i < ROWS * D; i += 32)
    if (query + i / D < a.length)
      o[static_cast<size_t>(query) * D + i] =
          __float2half(*out.at(first + i / D, i % D) / stats.sum[first + i / D]);
}

// Softmax of one row of 64 scores, the whole row in every lane: 64 XU instructions for 64 values that
// a warp needs two instructions for. Scores become probabilities; sum and correction are set.
template <class T, class S>
__device__ __forceinline__ void redundant_softmax_row(const Attention& a, T& s, S& stats, int row,
                                                      int query, int key) {
  int lane = threadIdx.x % 32;
  float old = stats.max[row], max = old, sum = 0.0f, mine[N / 32];
  for (int col = 0; col < N; ++col)
    if (a.sees(query, key + col)) max = fmaxf(max, *s.at(row, col) * a.scale);
#pragma unroll
  for (int col = 0; col < N; ++col) {
    float p = exp_approx(a.sees(query, key + col) ? *s.at(row, col) * a.scale - max : -INFINITY);
    sum += p;
    if (col % 32 == lane) mine[col / 32] = p;
  }
  float correction = exp_approx(old - max), total = stats.sum[row] * correction + sum;
  __syncwarp();  // everybody has read the row and its statistics
#pragma unroll
  for (int i = 0; i < N / 32; ++i) *s.at(row, 32 * i + lane) = mine[i];
  if (lane == 0) stats.max[row] = max, stats.sum[row] = total, stats.correction[row] = correction;
  __syncwarp();
}

// out[row] = out[row] correction + p[row] v by scalar multiply-adds, a read and a write of shared
// memory for each.
template <int D, class P, class V, class U, class S>
__device__ __forceinline__ void scalar_pv_row(const P& p, const V& v, U& out, const S& stats,
                                              int row) {
  int lane = threadIdx.x % 32;
  for (int d = lane; d < D; d += 32) {
    float sum = *out.at(row, d) * stats.correction[row];
#pragma unroll 8
    for (int key = 0; key < N; ++key) sum += *p.at(row, key) * __half2float(*v.at(key, d));
    *out.at(row, d) = sum;
  }
}

// out[row …] += p v for 16 rows and the 16 keys key … key+15: the output is loaded from shared memory
// and stored again.
template <int D, class U, class P, class V>
__device__ __forceinline__ void multiply_into(U& out, const P& p, const V& v, int row, int key) {
  Left left;
  wmma::load_matrix_sync(left, p.at(row, 0), P::STRIDE);
  for (int col = 0; col < D; col += 16) {
    Accumulator acc;
    Right<RowsAreK> right;
    wmma::load_matrix_sync(acc, out.at(row, col), U::STRIDE, wmma::mem_row_major);
    wmma::load_matrix_sync(right, v.at(key, col), V::STRIDE);
    wmma::mma_sync(acc, left, right, acc);
    store(out, acc, row, col);
  }
}

}  // namespace v2c
