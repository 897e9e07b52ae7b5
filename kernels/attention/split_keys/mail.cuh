/* Parts of rows that warps give each other, lane by lane.

   Warps with the same 16 rows and other keys have parts of the same result: an output, a maximum and a
   sum a row. In mma.sync's layout lane l holds the same elements in each of them, so a part is sent as
   the registers of each lane, 16 bytes a line, and added by the same lane of another warp: no
   transposing, no bank conflicts.
*/
#pragma once
#include "../../common/flash.cuh"

// What a lane has of rows g and g+8: the maximum of the row, its own share of the sum.
struct Stats {
  float max[2], sum[2];
};

// TILES of 16x8 results of a warp, with their stats. In halves they are divided by the row's sum
// first, so that they fit: that rounds them once more.
template <int TILES, bool HALF>
struct alignas(16) Mail {
  static constexpr int LINES = (HALF ? TILES / 2 : TILES) + 1;
  float4 line[LINES][32];

  // Calls put(line, value) for each line of this lane.
  template <class PUT>
  static __device__ __forceinline__ void write(const float (*out)[4], const Stats& stats, PUT put) {
    float sum[2] = {stats.sum[0], stats.sum[1]};
    if constexpr (HALF) {
      float scale[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        sum[i] = flash::quad_sum(sum[i]);
        scale[i] = sum[i] > 0.0f ? 1.0f / sum[i] : 0.0f;
      }
#pragma unroll
      for (int n = 0; n < TILES; n += 2) {
        float w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          w[i] = __uint_as_float(pack(out[n + i / 2][i % 2 * 2] * scale[i % 2],
                                      out[n + i / 2][i % 2 * 2 + 1] * scale[i % 2]));
        put(n / 2, make_float4(w[0], w[1], w[2], w[3]));
      }
    } else {
#pragma unroll
      for (int n = 0; n < TILES; ++n)
        put(n, make_float4(out[n][0], out[n][1], out[n][2], out[n][3]));
    }
    put(LINES - 1, make_float4(stats.max[0], stats.max[1], sum[0], sum[1]));
  }

  // Tile n of this lane.
  __device__ __forceinline__ void read(float (&x)[4], int n, int lane) const {
    if constexpr (HALF) {
      float4 both = line[n / 2][lane];
      float words[2] = {n % 2 ? both.z : both.x, n % 2 ? both.w : both.y};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t w = __float_as_uint(words[i]);
        float2 pair = __half22float2(*reinterpret_cast<half2*>(&w));
        x[2 * i] = pair.x, x[2 * i + 1] = pair.y;
      }
    } else {
      float4 y = line[n][lane];
      x[0] = y.x, x[1] = y.y, x[2] = y.z, x[3] = y.w;
    }
  }

  // out and stats become those of both parts.
  __device__ __forceinline__ void merge_into(float (*out)[4], Stats& stats, int lane) const {
    float4 theirs = line[LINES - 1][lane];
    float max[2] = {theirs.x, theirs.y}, sum[2] = {theirs.z, theirs.w}, mine[2], other[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float top = fmaxf(stats.max[i], max[i]);
      float base = top == -INFINITY ? 0.0f : top;  // neither sees a key: exp2(-inf - 0) = 0, not NaN
      mine[i] = exp2_approx(stats.max[i] - base);
      other[i] = exp2_approx(max[i] - base);
      stats.max[i] = top;
      if (HALF) {
        other[i] *= sum[i];  // of the whole quad: one lane counts it
        stats.sum[i] = stats.sum[i] * mine[i] + (lane % 4 == 0 ? other[i] : 0.0f);
      } else {
        stats.sum[i] = stats.sum[i] * mine[i] + sum[i] * other[i];
      }
    }
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
      float x[4];
      read(x, n, lane);
#pragma unroll
      for (int i = 0; i < 4; ++i) out[n][i] = out[n][i] * mine[i / 2] + x[i] * other[i / 2];
    }
  }
};
