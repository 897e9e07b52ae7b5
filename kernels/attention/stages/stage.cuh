/* The stage family's blocks: 32 rows of a head per block, tiles of 32 keys, 4 warps.

   Scores, probabilities and the running output travel through shared memory, as they must for
   whoever does not know where a matrix product leaves its result (WMMA does not say). The products
   are mma.sync all the same: then two rungs can differ in their addresses alone. Between barriers a
   row belongs to one warp: warp w softmaxes and rescales rows w, w+4, …, one score per lane.
*/
#pragma once
#include "../../common/mma.cuh"

namespace stage {

constexpr int M = 32, N = 32, WARPS = 4, THREADS = 32 * WARPS, ROWS = M / WARPS;

// Row i of this warp is row warp + 4 i of the block. Every lane holds the same.
struct Softmax {
  float max[ROWS], sum[ROWS];
  __device__ __forceinline__ Softmax() {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) max[i] = -INFINITY, sum[i] = 0.0f;
  }
};

// s = q k^T: each warp one 16x16 quarter.
template <class Q, class K, class S>
__device__ __forceinline__ void scores(const Q& q, const K& k, S& s, int head_dim) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int row = warp / 2 * 16, col = warp % 2 * 16;
  float acc[2][4] = {};
#pragma unroll
  for (int d = 0; d < head_dim; d += 16) {
    uint32_t a[4], b[4];
    load_a(a, q, row, d, lane);
    load_b(b, k, col, d, lane);
    mma(acc[0], a, b[0], b[1]);
    mma(acc[1], a, b[2], b[3]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 2; ++j)
      *s.at(row + acc_row(lane, i), col + 8 * j + acc_col(lane, i)) = acc[j][i];
}

// One online softmax step of row `row`, whose score for key `key` is `score` in each lane: returns
// this lane's probability (relative to the new maximum) and scales the row of `out` to match.
template <class U>
__device__ __forceinline__ float softmax_row(const Attention& a, Softmax& state, int i, U& out,
                                             float score, int row, int query, int key,
                                             int head_dim) {
  int lane = threadIdx.x % 32;
  float x = a.sees(query, key) ? score * a.scale : -INFINITY;
  float max = fmaxf(state.max[i], warp_max(x));  // finite: key 0 is in the first tile of any row
  float p = exp_approx(x - max), correction = exp_approx(state.max[i] - max);
  state.sum[i] = state.sum[i] * correction + warp_sum(p);
  state.max[i] = max;
  for (int d = lane; d < head_dim; d += 32) *out.at(row, d) *= correction;
  return p;
}

// out[row] += p[row] v by scalar multiply-adds, two shared-memory reads for each.
template <class P, class V, class U>
__device__ __forceinline__ void scalar_pv(const P& p, const V& v, U& out, int row, int head_dim) {
  int lane = threadIdx.x % 32;
  for (int d = lane; d < head_dim; d += 32) {
    float sum = *out.at(row, d);
#pragma unroll 8
    for (int key = 0; key < N; ++key) sum += *p.at(row, key) * __half2float(*v.at(key, d));
    *out.at(row, d) = sum;
  }
}

// out += p v on the tensor cores: each warp 16 rows and half the columns, 32 columns at a time
// through its own `scratch` (16 x 32), from where it adds to `out` one row after the other.
template <class P, class V, class X, class U>
__device__ __forceinline__ void tensor_pv(const P& p, const V& v, X& scratch, U& out,
                                          int head_dim) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = warp / 2 * 16;
  for (int pass = 0; pass < head_dim / 64; ++pass) {
    int col = warp % 2 * (head_dim / 2) + pass * 32;
    float acc[4][4] = {};
#pragma unroll
    for (int key = 0; key < N; key += 16) {
      uint32_t a[4], b[4];
      load_a(a, p, row, key, lane);
#pragma unroll
      for (int j = 0; j < 4; j += 2) {
        load_b_trans(b, v, key, col + 8 * j, lane);
        mma(acc[j], a, b[0], b[1]);
        mma(acc[j + 1], a, b[2], b[3]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        *scratch.at(acc_row(lane, i), 8 * j + acc_col(lane, i)) = acc[j][i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16; ++i) *out.at(row + i, col + lane) += *scratch.at(i, lane);
    __syncwarp();  // the scratch is read before the next 32 columns overwrite it
  }
}

// out = 0, each row by the warp that owns it.
template <class U>
__device__ __forceinline__ void clear(U& out, int head_dim) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int row = warp; row < M; row += WARPS)
    for (int d = lane; d < head_dim; d += 32) *out.at(row, d) = 0.0f;
}

// o = out / sum, each row by the warp that owns it.
template <class U>
__device__ __forceinline__ void store(const Attention& a, const Softmax& state, U& out, half* o,
                                      int first, int head_dim) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    int row = warp + WARPS * i;
    if (first + row >= a.length) break;
    float scale = 1.0f / state.sum[i];
    for (int d = lane; d < head_dim; d += 32)
      o[static_cast<size_t>(first + row) * head_dim + d] = __float2half(*out.at(row, d) * scale);
  }
}

}  // namespace stage
