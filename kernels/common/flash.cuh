/* Sixteen query rows of one warp with everything in registers: the blocks of the flash kernels.

   Q, scores, probabilities and output are mma.sync fragments (mma.cuh says which lane holds what):
   a lane holds parts of rows g and g+8, and the four lanes of a quad hold those rows between them.
   Only K and V live in shared memory.
*/
#pragma once
#include "cp_async.cuh"
#include "mma.cuh"

namespace flash {

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

template <int D>
struct Rows {
  uint32_t q[D / 16][4];
  float out[D / 8][4];
  float max[2], sum[2];  // of row g and of row g+8

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int d = 0; d < D / 8; ++d)
#pragma unroll
      for (int i = 0; i < 4; ++i) out[d][i] = 0.0f;
    max[0] = max[1] = -INFINITY;
    sum[0] = sum[1] = 0.0f;
  }
  // Rows row … row+15 of a tile.
  template <class Q>
  __device__ __forceinline__ void load(const Q& tile, int row, int lane) {
#pragma unroll
    for (int d = 0; d < D / 16; ++d) load_a(q[d], tile, row, 16 * d, lane);
  }
  // out *= factor[0] for row g, factor[1] for row g+8.
  __device__ __forceinline__ void rescale(const float (&factor)[2]) {
#pragma unroll
    for (int d = 0; d < D / 8; ++d)
#pragma unroll
      for (int i = 0; i < 4; ++i) out[d][i] *= factor[i / 2];
  }
  // o[row …] = out / sum, for rows before `end`.
  __device__ __forceinline__ void store(half* o, int row, int end, int lane) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int r = row + lane / 4 + 8 * i;
      if (r >= end) continue;
      float scale = 1.0f / sum[i];
#pragma unroll
      for (int d = 0; d < D / 8; ++d)
        *reinterpret_cast<half2*>(o + static_cast<size_t>(r) * D + 8 * d + lane % 4 * 2) =
            __floats2half2_rn(out[d][2 * i] * scale, out[d][2 * i + 1] * scale);
    }
  }
};

// s = q k^T for the keys key … key+N-1 of a tile.
template <int N, int D, class K>
__device__ __forceinline__ void scores(float (&s)[N / 8][4], const uint32_t (&q)[D / 16][4],
                                       const K& k, int key, int lane) {
#pragma unroll
  for (int n = 0; n < N / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] = 0.0f;
#pragma unroll
  for (int d = 0; d < D / 16; ++d)
#pragma unroll
    for (int n = 0; n < N / 16; ++n) {
      uint32_t b[4];
      load_b(b, k, key + 16 * n, 16 * d, lane);
      mma(s[2 * n], q[d], b[0], b[1]);
      mma(s[2 * n + 1], q[d], b[2], b[3]);
    }
}

template <int TILES>
__device__ __forceinline__ void scale_scores(float (&s)[TILES][4], float scale) {
#pragma unroll
  for (int n = 0; n < TILES; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] *= scale;
}

// Some of the rows row … row+15 do not see some of the keys key … key+N-1.
template <int N>
__device__ __forceinline__ bool at_edge(const Attention& a, int row, int key) {
  return key + N > a.length || (a.causal && key + N - 1 > row);
}
// -inf where the row does not see the key.
template <int N>
__device__ __forceinline__ void mask(const Attention& a, float (&s)[N / 8][4], int row, int key,
                                     int lane) {
#pragma unroll
  for (int n = 0; n < N / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (!a.sees(row + acc_row(lane, i), key + 8 * n + acc_col(lane, i))) s[n][i] = -INFINITY;
}

// out += p v for the keys key … key+N-1 of a tile; p stays in its registers, packed to halves.
template <int N, int D, class V>
__device__ __forceinline__ void pv(float (&out)[D / 8][4], const float (&p)[N / 8][4], const V& v,
                                   int key, int lane) {
#pragma unroll
  for (int n = 0; n < N / 16; ++n) {
    uint32_t a[4] = {pack(p[2 * n][0], p[2 * n][1]), pack(p[2 * n][2], p[2 * n][3]),
                     pack(p[2 * n + 1][0], p[2 * n + 1][1]),
                     pack(p[2 * n + 1][2], p[2 * n + 1][3])};
#pragma unroll
    for (int d = 0; d < D / 16; ++d) {
      uint32_t b[4];
      load_b_trans(b, v, key + 16 * n, 16 * d, lane);
      mma(out[2 * d], a, b[0], b[1]);
      mma(out[2 * d + 1], a, b[2], b[3]);
    }
  }
}

// One online softmax step: s becomes probabilities relative to the new maximum, out and sum follow.
template <int N, int D>
__device__ __forceinline__ void softmax(Rows<D>& r, float (&s)[N / 8][4]) {
  float correction[2], sum[2] = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float max = r.max[i];  // finite from the first tile on: every row sees key 0
#pragma unroll
    for (int n = 0; n < N / 8; ++n) max = fmaxf(max, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
    max = quad_max(max);
    correction[i] = exp_approx(r.max[i] - max);
    r.max[i] = max;
  }
#pragma unroll
  for (int n = 0; n < N / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i / 2] += s[n][i] = exp_approx(s[n][i] - r.max[i / 2]);
#pragma unroll
  for (int i = 0; i < 2; ++i) r.sum[i] = r.sum[i] * correction[i] + quad_sum(sum[i]);
  r.rescale(correction);
}

// exp(scale (s - max)) as exp2(s c - max c). c is positive, so that the largest score is the largest
// exponent: a negative scale gives its sign to Q. And c is not 0, so that masked scores stay -inf.
struct Folded {
  float factor;
  uint32_t sign;
  __device__ __forceinline__ explicit Folded(float scale)
      : factor(fmaxf(fabsf(scale) * LOG2E, 1e-30f)), sign(scale < 0.0f ? 0x80008000u : 0u) {}
  template <int K>
  __device__ __forceinline__ void apply_sign(uint32_t (&q)[K][4]) const {
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) q[k][i] ^= sign;
  }
};

// The first half of folded_softmax(): s becomes probabilities, r.max and r.sum (a lane's own) follow;
// `correction` is what r.out has still to be scaled by.
template <int N, int D>
__device__ __forceinline__ void folded_probabilities(Rows<D>& r, float (&s)[N / 8][4], float factor,
                                                     float (&correction)[2]) {
  float offset[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float max = r.max[i];
#pragma unroll
    for (int n = 0; n < N / 8; ++n) max = fmaxf(max, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
    max = quad_max(max);
    correction[i] = exp2_approx((r.max[i] - max) * factor);
    offset[i] = -max * factor;
    r.max[i] = max;
    r.sum[i] *= correction[i];
  }
#pragma unroll
  for (int n = 0; n < N / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      r.sum[i / 2] += s[n][i] = exp2_approx(fmaf(s[n][i], factor, offset[i / 2]));
}

// softmax() with the scale folded in; r.sum stays a lane's own, to be added up over the quad.
template <int N, int D>
__device__ __forceinline__ void folded_softmax(Rows<D>& r, float (&s)[N / 8][4], float factor) {
  float correction[2];
  folded_probabilities<N>(r, s, factor, correction);
  r.rescale(correction);
}

}  // namespace flash
