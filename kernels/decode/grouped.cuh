/* Up to eight query heads share each load of their keys and values, by mma.sync, straight from registers.

   A warp takes KEYS keys at a time. Of K, lane (g, t) loads 16 bytes of the row of key g: for a product
   over d, any order of d will do that Q has too, so a 16-byte chunk is the right operand of two products
   as it is: S = Q K^T with the heads as rows, half of which are empty. Of V, lane (g, t) loads 16 bytes at
   d = 8 g of the keys that it holds probabilities of (2t, 2t+1, 2t+8, 2t+9): two keys' elements put
   together are the left operand of O^T = V^T P^T, and S in its registers the right one. Nothing goes
   through shared memory until warps meet.
*/
#pragma once
#include "cache.cuh"

namespace grouped {

constexpr int WARPS = 8, THREADS = 32 * WARPS, HEADS = 8;

// Output, maximum and sum of the warps of a block, or of the splits of a sequence: parts to be added.
template <int D>
struct Part {
  float max[HEADS], sum[HEADS], o[HEADS][D];  // o: not yet divided by the sum
};

__device__ __forceinline__ uint32_t pack_halves(float low, float high) {
  half2 h = __floats2half2_rn(low, high);
  return *reinterpret_cast<uint32_t*>(&h);
}

struct alignas(16) Chunk {
  uint32_t word[4];
};

// A lane's scores of 8 N keys become probabilities; what it has of earlier keys, sum and out, is weighed
// against the new maximum, of which `higher` is this lane's.
template <int D, int N>
__device__ __forceinline__ void weigh(float (&s)[N][4], float higher, float& max, float& sum,
                                      float (&out)[D / 16][4], int t) {
  higher = fmaxf(higher, __shfl_xor_sync(0xffffffffu, higher, 1));
  higher = fmaxf(higher, __shfl_xor_sync(0xffffffffu, higher, 2));
  const float correction = exp2_approx(max - higher);
  max = higher;
  sum *= correction;
  float of[2];  // heads 2t and 2t+1, whose lanes are those of g = 2t and 2t+1
#pragma unroll
  for (int e = 0; e < 2; ++e) of[e] = __shfl_sync(0xffffffffu, correction, 4 * (2 * t + e));
#pragma unroll
  for (int i = 0; i < D / 16; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) out[i][e] *= of[e % 2];
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) sum += s[n][i] = exp2_approx(s[n][i] - max);
}

// A lane's output, maximum and sum go to a part.
template <int D>
__device__ __forceinline__ void leave_part(Part<D>& part, float max, float sum,
                                           const float (&out)[D / 16][4], int g, int t) {
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  if (t == 0) part.max[g] = max, part.sum[g] = sum;
#pragma unroll
  for (int i = 0; i < D / 16; ++i)  // d = 64 (i / 4) + 8 g + 2 (i % 4) and the next
#pragma unroll
    for (int e = 0; e < 4; ++e)
      part.o[2 * t + e % 2][64 * (i / 4) + 8 * g + 2 * (i % 4) + e / 2] = out[i][e];
}

// What one warp has seen so far.
template <int D>
class Warp {
  static constexpr int KEYS = 4096 / D;  // 8 KiB of K and as much of V under way
  const Decode& c;
  const int sequence, key_head, lane, g, t;
  Chunk q[D / 32];
  float out[D / 16][4] = {};  // (d, heads 2t and 2t+1)
  float max = -INFINITY, sum = 0.0f;  // of head g

 public:
  static constexpr int STEP = WARPS * KEYS;  // keys of a block at a time

  __device__ __forceinline__ Warp(const Decode& c, int sequence, int key_head)
      : c(c), sequence(sequence), key_head(key_head), lane(threadIdx.x % 32), g(lane / 4), t(lane % 4) {
    const int group = c.group();
    const half* mine = c.q + (static_cast<size_t>(sequence) * c.heads + key_head * group + g) * D;
#pragma unroll
    for (int j = 0; j < D / 32; ++j)
      q[j] = g < group ? reinterpret_cast<const Chunk*>(mine)[4 * j + t] : Chunk{};
  }

  // Keys first … end-1, in steps of the whole block.
  __device__ __forceinline__ void attend(int first, int end) {
    for (first += threadIdx.x / 32 * KEYS; first < end; first += STEP) {
      if (first + KEYS <= end)
        step<true>(first, end);
      else
        step<false>(first, end);
    }
  }

  __device__ __forceinline__ void leave(Part<D>& part) {
    leave_part(part, max, sum, out, g, t);
  }

 private:
  // Sixteen keys lie in one page: a tile begins at a multiple of 16, and so does a page.
  __device__ __forceinline__ const half* tile(const half* cache, int key) const {
    return cache + c.at(sequence, key_head, key) * D;
  }

  template <bool WHOLE>
  __device__ __forceinline__ void step(int first, int end) {
    Chunk k[KEYS / 8][D / 32], v[KEYS / 16][4][D / 64];
#pragma unroll
    for (int n = 0; n < KEYS / 16; ++n) {
      const int key = first + 16 * n;
      const bool any = WHOLE || key < end;
      const size_t row = any ? c.at(sequence, key_head, key) : 0;
      const half *keys = c.k + row * D, *values = c.v + row * D;
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < D / 32; ++j)
          k[2 * n + i][j] = WHOLE || key + 8 * i + g < end
                                ? reinterpret_cast<const Chunk*>(keys + (8 * i + g) * D)[4 * j + t]
                                : Chunk{};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int mine = i / 2 * 8 + 2 * t + i % 2;
#pragma unroll
        for (int j = 0; j < D / 64; ++j)
          v[n][i][j] = WHOLE || key + mine < end
                           ? reinterpret_cast<const Chunk*>(values + mine * D)[8 * j + g]
                           : Chunk{};
      }
    }
    float s[KEYS / 8][4];
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] = 0.0f;
#pragma unroll
      for (int j = 0; j < D / 32; ++j)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const uint32_t left[4] = {q[j].word[i], 0, q[j].word[i + 1], 0};
          mma(s[n], left, k[n][j].word[i], k[n][j].word[i + 1]);
        }
    }
    float higher = max;
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        s[n][i] *= c.factor;
        if (!WHOLE && first + 8 * n + 2 * t + i >= end) s[n][i] = -INFINITY;
        higher = fmaxf(higher, s[n][i]);
      }
    weigh<D>(s, higher, max, sum, out, t);
#pragma unroll
    for (int n = 0; n < KEYS / 16; ++n) {
      const uint32_t p[2] = {pack_halves(s[2 * n][0], s[2 * n][1]),
                             pack_halves(s[2 * n + 1][0], s[2 * n + 1][1])};
#pragma unroll
      for (int i = 0; i < D / 16; ++i) {
        uint32_t word[4];
#pragma unroll
        for (int key = 0; key < 4; ++key) word[key] = v[n][key][i / 4].word[i % 4];
        const uint32_t left[4] = {
            (word[0] & 0xffffu) | word[1] << 16, word[0] >> 16 | (word[1] & 0xffff0000u),
            (word[2] & 0xffffu) | word[3] << 16, word[2] >> 16 | (word[3] & 0xffff0000u)};
        mma(out[i], left, p[0], p[1]);
      }
    }
  }
};

// The sum of `count` parts, element by element; what has seen no key counts for nothing.
// get(i): part i. put(head, d, o, max, sum): takes an element of the sum.
template <int D, class Get, class Put>
__device__ __forceinline__ void add_up(int count, int heads, Get get, Put put) {
  for (int i = threadIdx.x; i < heads * D; i += THREADS) {
    const int head = i / D, d = i % D;
    float max = -INFINITY, sum = 0.0f, o = 0.0f;
    for (int j = 0; j < count; ++j) max = fmaxf(max, get(j).max[head]);
    for (int j = 0; j < count; ++j) {
      const Part<D>& part = get(j);
      if (part.max[head] == -INFINITY) continue;
      const float weight = exp2_approx(part.max[head] - max);
      sum += weight * part.sum[head], o += weight * part.o[head][d];
    }
    put(head, d, o, max, sum);
  }
}

template <int D>
__device__ __forceinline__ void store(const Decode& c, int sequence, int key_head, int head, int d,
                                      float o, float sum) {
  const size_t row = static_cast<size_t>(sequence) * c.heads + key_head * c.group() + head;
  c.o[row * D + d] = __float2half(o / sum);
}

// Whether this way can be gone: at most eight heads a group, and sixteen keys in one page.
inline bool fits(const Decode& c) {
  return c.group() <= HEADS && (c.pages == 1 || c.page % 16 == 0);
}

}  // namespace grouped
