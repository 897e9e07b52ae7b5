/* The exponentials of a tile of scores, and three ways to the maximum that they are relative to.

   A lane holds parts of rows g and g+8 as mma.sync's accumulators (flash.cuh). Row maxima are kept in
   units of the exponent here: a score times `factor`. Any number that keeps exp2 in range will do for a
   maximum; what is summed up before has to be corrected where it changes:

     EVERY   the true maximum after every tile: shuffles, a correction and a rescaled output each time
     LAZY    raised only when a score lies more than 2^8 above it: almost never after the first tile
     NONE    not looked for at all after the first tile; where a lane's sum then shows that exponentials
             were too large, the caller computes the scores anew and takes the true maximum
*/
#pragma once
#include "../../common/flash.cuh"

#ifndef SUM_LIMIT
#define SUM_LIMIT 16384.0f  // of a lane: no probability is above it, and halves go to 65504
#endif

enum class Maximum { EVERY, LAZY, NONE };

namespace online {

constexpr float LAZY_BY = 8.0f;  // halves hold 2^15: probabilities of 2^8 keep all their bits

// 2^x on the FMA pipe: a cubic for the fraction, 1e-4 off, which is a fifth of what halves round off.
__device__ __forceinline__ float exp2_cubic(float x) {
  x = fmaxf(x, -126.0f);
  float shifted = x + 12582912.0f;  // 1.5 * 2^23: the low bits are x rounded to an integer
  float r = x - (shifted - 12582912.0f);
  float p = fmaf(fmaf(fmaf(0.0559f, r, 0.2422f), r, 0.69314f), r, 1.0f);
  return __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
}

// The largest of a lane's own scores, in four chains a row: one chain would wait for itself.
template <int TILES>
__device__ __forceinline__ void lane_max(float (&top)[2], const float (&s)[TILES][4]) {
  constexpr int CHAINS = 4;
  float max[2][CHAINS];
#pragma unroll
  for (int n = 0; n < TILES; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float x = fmaxf(s[n][2 * i], s[n][2 * i + 1]);
      max[i][n % CHAINS] = n < CHAINS ? x : fmaxf(max[i][n % CHAINS], x);
    }
#pragma unroll
  for (int i = 0; i < 2; ++i) top[i] = fmaxf(fmaxf(max[i][0], max[i][1]), fmaxf(max[i][2], max[i][3]));
}

// The row's maximum is now at least factor * top of each lane; the sum follows, and `correction` is
// what the output has still to be scaled by.
template <int D>
__device__ __forceinline__ void raise(flash::Rows<D>& rows, const float (&top)[2], float factor,
                                      float (&correction)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float max = fmaxf(flash::quad_max(top[i]) * factor, rows.max[i]);
    correction[i] = exp2_approx(rows.max[i] - max);
    rows.max[i] = max;
    rows.sum[i] *= correction[i];
  }
}

// Whether a lane of the warp has scores so far above the maximum that it has to be raised.
template <int D>
__device__ __forceinline__ bool too_low(const flash::Rows<D>& rows, const float (&top)[2],
                                        float factor) {
  float above = fmaxf(fmaf(top[0], factor, -rows.max[0]), fmaf(top[1], factor, -rows.max[1]));
  return __any_sync(0xffffffffu, above > LAZY_BY);
}

// s becomes probabilities relative to rows.max; returns what a lane's own add up to. CUBIC: of sixteen,
// so many are computed by exp2_cubic.
template <int CUBIC, int D, int TILES>
__device__ __forceinline__ void exponentials(const flash::Rows<D>& rows, float (&s)[TILES][4],
                                             float factor, float (&sum)[2]) {
  const float offset[2] = {-rows.max[0], -rows.max[1]};
  sum[0] = sum[1] = 0.0f;
#pragma unroll
  for (int n = 0; n < TILES; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float x = fmaf(s[n][i], factor, offset[i / 2]);
      s[n][i] = (n * 4 + i) % 16 * CUBIC % 16 < CUBIC ? exp2_cubic(x) : exp2_approx(x);
      sum[i / 2] += s[n][i];
    }
}

// Exponentials overflowed, or came near it.
__device__ __forceinline__ bool too_large(const float (&sum)[2]) {
  return __any_sync(0xffffffffu, !(fmaxf(sum[0], sum[1]) < SUM_LIMIT));  // NaN counts
}

}  // namespace online
