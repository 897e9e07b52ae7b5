/* mma.sync m16n8k16 (fp16 in, fp32 out) and ldmatrix, with the layouts that PTX documents.

   lane = 4 g + t, g = 0…7, t = 0…3. One register of A and B holds two halves, the lower column or
   k first; one of C and D holds one float.

     A (16 x 16)   a[0] (g, 2t…)      a[1] (g+8, 2t…)      a[2] (g, 2t+8…)      a[3] (g+8, 2t+8…)
     B (16 x 8)    b[0] (k = 2t…, n = g)                   b[1] (k = 2t+8…, n = g)
     C, D (16 x 8) c[0] (g, 2t)       c[1] (g, 2t+1)       c[2] (g+8, 2t)       c[3] (g+8, 2t+1)

   For e4m3 (k = 32) a register holds four codes and k counts in fours: 4t… and 4t+16…; the bytes lie
   where those of halves would.

   So two C tiles side by side, packed to halves, are one A tile: P of softmax(Q K^T) becomes the
   left operand of P V in the same registers.
*/
#pragma once
#include "tile.cuh"

// Row and column of slot i of a 16x8 accumulator.
__host__ __device__ constexpr int acc_row(int lane, int i) { return lane / 4 + i / 2 * 8; }
__host__ __device__ constexpr int acc_col(int lane, int i) { return lane % 4 * 2 + i % 2; }

// A: rows row … row+15, columns col … col+15 of a tile.
template <class TILE>
__device__ __forceinline__ void load_a(uint32_t (&a)[4], const TILE& tile, int row, int col,
                                       int lane) {
  ldmatrix(a, tile.at(row + lane % 16, col + lane / 16 * TILE::CHUNK));
}
// B for two n-blocks of 8, from a tile whose rows are n (K for Q K^T): n = row … row+15,
// k = col … col+15; b[0], b[1] belong to the first block, b[2], b[3] to the second.
template <class TILE>
__device__ __forceinline__ void load_b(uint32_t (&b)[4], const TILE& tile, int row, int col,
                                       int lane) {
  ldmatrix(b, tile.at(row + lane % 8 + lane / 16 * 8, col + lane / 8 % 2 * TILE::CHUNK));
}
// B for two n-blocks of 8, from a tile whose rows are k (V for P V): k = row … row+15,
// n = col … col+15.
template <class TILE>
__device__ __forceinline__ void load_b_trans(uint32_t (&b)[4], const TILE& tile, int row, int col,
                                             int lane) {
  ldmatrix_trans(b, tile.at(row + lane % 16, col + lane / 16 * 8));
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
  half2 h = __floats2half2_rn(low, high);
  return *reinterpret_cast<uint32_t*>(&h);
}
