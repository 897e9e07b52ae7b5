/* WMMA (nvcuda::wmma) on tiles: 16x16x16, fp16 in, fp32 out. Which lane holds what, it does not say. */
#pragma once
#include <mma.h>

#include "tile.cuh"

namespace wmma = nvcuda::wmma;

using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;
using Left = wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major>;
template <class ORDER>
using Right = wmma::fragment<wmma::matrix_b, 16, 16, 16, half, ORDER>;
using RowsAreK = wmma::row_major;  // B's tile is stored as it is multiplied (V)
using RowsAreN = wmma::col_major;  // B's tile is stored transposed (K)

// c += a b: rows row … row+15 of A, columns col … col+15 of B, over `depth`.
template <class ORDER, class A, class B>
__device__ __forceinline__ void multiply_add(Accumulator& c, const A& a, const B& b, int row,
                                             int col, int depth) {
  constexpr bool TRANSPOSED = std::is_same_v<ORDER, RowsAreN>;
  for (int k = 0; k < depth; k += 16) {
    Left left;
    Right<ORDER> right;
    wmma::load_matrix_sync(left, a.at(row, k), A::STRIDE);
    wmma::load_matrix_sync(right, TRANSPOSED ? b.at(col, k) : b.at(k, col), B::STRIDE);
    wmma::mma_sync(c, left, right, c);
  }
}
template <class C>
__device__ __forceinline__ void store(C& tile, const Accumulator& c, int row, int col) {
  wmma::store_matrix_sync(tile.at(row, col), c, C::STRIDE, wmma::mem_row_major);
}
