/* Keys split over the warps of a block: each warp attends to its own keys, and the block adds up.

   Every warp holds 16 STRIPS rows (the same for all) and sees some of the keys, with a maximum, a sum
   and an output of its own. Written with m for a row's maximum over all warps w, the result is
   sum_w 2^(m_w - m) out_w / sum_w 2^(m_w - m) sum_w. A warp that sees no key of a row has m_w = -inf
   and counts for nothing.
*/
#pragma once
#include "flash.cuh"

namespace splitk {

// The first softmax of a row by a warp, or one more: as flash::folded_softmax, but a row may see none
// of the keys. r.max is in units of the exponent (scaled by `factor`), r.sum stays a lane's own.
template <int N, int D>
__device__ __forceinline__ void softmax(flash::Rows<D>& r, float (&s)[N / 8][4], float factor,
                                        bool first) {
  float offset[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float max = fmaxf(s[0][2 * i], s[0][2 * i + 1]);
#pragma unroll
    for (int n = 1; n < N / 8; ++n) max = fmaxf(max, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
    max = flash::quad_max(max) * factor;
    offset[i] = fmaxf(max, r.max[i]);
  }
  if (!first) {
    float correction[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      correction[i] = r.max[i] == -INFINITY ? 0.0f : exp2_approx(r.max[i] - offset[i]);
      r.sum[i] *= correction[i];
    }
    r.rescale(correction);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    r.max[i] = offset[i];
    offset[i] = offset[i] == -INFINITY ? 0.0f : -offset[i];  // exp2(-inf + 0) = 0, not NaN
  }
#pragma unroll
  for (int n = 0; n < N / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      r.sum[i / 2] += s[n][i] = exp2_approx(fmaf(s[n][i], factor, offset[i / 2]));
}

// What one warp leaves for the others: ROWS rows of D floats. A row is stored in 16-byte chunks,
// XORed so that neither the fragments that write it (four rows, two chunks at a time) nor the rows
// that read it (eight chunks) meet in a bank.
template <int ROWS, int D>
struct alignas(128) Partial {
  float out[ROWS][D];
  __device__ __forceinline__ float* at(int row, int col) {
    return &out[row][(col / 4 ^ (row & 3) * 2) * 4 + col % 4];
  }
};
template <int WARPS, int ROWS>
struct Stats {
  float max[WARPS][ROWS], sum[WARPS][ROWS];
};

// Writes rows row … row+15 of this warp's part, the rows stats_row + row … of the block.
template <int D, class PARTIAL, class STATS>
__device__ __forceinline__ void leave(PARTIAL& partial, STATS& stats, const flash::Rows<D>& r,
                                      int row, int stats_row, int warp, int lane) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float sum = flash::quad_sum(r.sum[i]);
    if (lane % 4 == 0) {
      stats.max[warp][stats_row + row + lane / 4 + 8 * i] = r.max[i];
      stats.sum[warp][stats_row + row + lane / 4 + 8 * i] = sum;
    }
#pragma unroll
    for (int d = 0; d < D / 8; ++d)
      *reinterpret_cast<float2*>(partial.at(row + lane / 4 + 8 * i, 8 * d + lane % 4 * 2)) =
          make_float2(r.out[d][2 * i], r.out[d][2 * i + 1]);
  }
}

// o = the sum over WARPS parts, after a barrier; eight threads a row take four columns at a time.
// part(w, row, col) is where warp w left that element; `first` is row 0 in the head, rows before `end`
// are written.
template <int D, int ROWS, int WARPS, int THREADS, class STATS, class PART>
__device__ __forceinline__ void combine(const STATS& stats, PART part, half* o, int first, int end,
                                        int thread) {
  constexpr int LANES = 8, ROWS_A_PASS = THREADS / LANES;
  static_assert(THREADS % LANES == 0, "");
  for (int row = thread / LANES; row < ROWS; row += ROWS_A_PASS) {
    if (first + row >= end) break;
    float max = stats.max[0][row], weight[WARPS], sum = 0.0f;
#pragma unroll
    for (int w = 1; w < WARPS; ++w) max = fmaxf(max, stats.max[w][row]);
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      weight[w] = exp2_approx(stats.max[w][row] - max);
      sum += weight[w] * stats.sum[w][row];
    }
    float scale = 1.0f / sum;
#pragma unroll
    for (int col = thread % LANES * 4; col < D; col += LANES * 4) {
      float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int w = 0; w < WARPS; ++w) {
        float4 x = *reinterpret_cast<const float4*>(part(w, row, col));
        total.x += weight[w] * x.x, total.y += weight[w] * x.y;
        total.z += weight[w] * x.z, total.w += weight[w] * x.w;
      }
      uint2 packed = make_uint2(pack(total.x * scale, total.y * scale),
                                pack(total.z * scale, total.w * scale));
      *reinterpret_cast<uint2*>(o + static_cast<size_t>(first + row) * D + col) = packed;
    }
  }
}

}  // namespace splitk
