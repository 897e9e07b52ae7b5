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

// What one warp or warpgroup leaves for the others: rows of D floats with their maximum and sum. A row
// is stored in 16-byte chunks, XORed so that neither the fragments that write it (four rows, two
// chunks at a time) nor the rows that read it (eight chunks) meet in a bank.
template <int ROWS_, int D>
struct alignas(128) Part {
  static constexpr int ROWS = ROWS_;
  float out[ROWS][D], max[ROWS], sum[ROWS];
  __device__ __forceinline__ float* at(int row, int col) {
    return &out[row][(col / 4 ^ (row & 3) * 2) * 4 + col % 4];
  }
};

// Writes the 16 rows of a warp, as rows row … row+15 of the part.
template <int D, int ROWS>
__device__ __forceinline__ void leave(Part<ROWS, D>& part, const flash::Rows<D>& r, int row,
                                      int lane) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    int mine = row + lane / 4 + 8 * i;
    float sum = flash::quad_sum(r.sum[i]);
    if (lane % 4 == 0) part.max[mine] = r.max[i], part.sum[mine] = sum;
#pragma unroll
    for (int d = 0; d < D / 8; ++d)
      *reinterpret_cast<float2*>(part.at(mine, 8 * d + lane % 4 * 2)) =
          make_float2(r.out[d][2 * i], r.out[d][2 * i + 1]);
  }
}

// o = the sum over PARTS parts of each row, after a barrier; eight threads a row take four columns at
// a time. part(p, row) holds row `row` as row % ROWS of a Part; row 0 is row `first` of the head, rows
// before `end` are written.
template <int D, int ROWS, int PARTS, int THREADS, class PART>
__device__ __forceinline__ void combine(PART part, half* o, int first, int end, int thread) {
  constexpr int LANES = 8;
  static_assert(THREADS % LANES == 0, "");
  for (int row = thread / LANES; row < ROWS; row += THREADS / LANES) {
    if (first + row >= end) break;
    float max = -INFINITY, weight[PARTS], sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      auto& x = part(p, row);
      weight[p] = x.max[row % x.ROWS];
      max = fmaxf(max, weight[p]);
    }
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      auto& x = part(p, row);
      weight[p] = exp2_approx(weight[p] - max);
      sum += weight[p] * x.sum[row % x.ROWS];
    }
    float scale = 1.0f / sum;
#pragma unroll
    for (int col = thread % LANES * 4; col < D; col += LANES * 4) {
      float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int p = 0; p < PARTS; ++p) {
        auto& from = part(p, row);
        float4 x = *reinterpret_cast<const float4*>(from.at(row % from.ROWS, col));
        total.x += weight[p] * x.x, total.y += weight[p] * x.y;
        total.z += weight[p] * x.z, total.w += weight[p] * x.w;
      }
      uint2 packed = make_uint2(pack(total.x * scale, total.y * scale),
                                pack(total.z * scale, total.w * scale));
      *reinterpret_cast<uint2*>(o + static_cast<size_t>(first + row) * D + col) = packed;
    }
  }
}

}  // namespace splitk
