/* Lanes side by side on a row of the cache: lanerow and widelane, which load its eights in their own way.

   D / 8 lanes have a row of K or V at a time. A few such groups of lanes in each of eight warps take
   keys in turn, each with a maximum and a sum of its own, and meet once, at the end.
*/
#pragma once
#include "cache.cuh"

namespace lanes {

constexpr int WARPS = 8, THREADS = 32 * WARPS, KEYS = 4;  // KEYS: of a group of lanes at a time

template <int D>
struct Shared {
  static constexpr int LANES = D / 8, GROUPS = THREADS / LANES;
  float max[GROUPS], sum[GROUPS], o[GROUPS][D];
};

struct alignas(16) Eight {
  half2 pair[4];
};

// A block has a query head and a sequence. load(row, i): eight number i of a row.
template <int D, class Load>
__device__ __forceinline__ void attend(const Decode& c, Load load) {
  constexpr int LANES = Shared<D>::LANES, GROUPS = Shared<D>::GROUPS;
  auto& m = shared_memory<Shared<D>>();
  const int lane = threadIdx.x % LANES, mine = threadIdx.x / LANES;
  const int head = blockIdx.x, sequence = blockIdx.y;
  const int key_head = head / c.group(), length = c.length(sequence);
  const size_t query = (static_cast<size_t>(sequence) * c.heads + head) * D;
  auto eight = [&](const half* p, size_t row) { return load(p + row * D, lane); };
  float q[8], out[8] = {}, max = -INFINITY, sum = 0.0f;
  Eight packed = eight(c.q, query / D);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float2 two = __half22float2(packed.pair[i / 2]);
    q[i] = (i % 2 ? two.y : two.x) * c.factor;
  }

  // All lanes of a warp go round equally often: they shuffle together.
  for (int first = 0; first < length; first += GROUPS * KEYS) {
    Eight k[KEYS], v[KEYS];
#pragma unroll
    for (int j = 0; j < KEYS; ++j) {
      int key = first + j * GROUPS + mine;
      size_t row = key < length ? c.at(sequence, key_head, key) : 0;
      if (key < length) k[j] = eight(c.k, row), v[j] = eight(c.v, row);
    }
    float s[KEYS], higher = max;
#pragma unroll
    for (int j = 0; j < KEYS; ++j) {
      s[j] = 0.0f;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float2 two = __half22float2(k[j].pair[i]);
        s[j] += q[2 * i] * two.x + q[2 * i + 1] * two.y;
      }
#pragma unroll
      for (int i = LANES / 2; i > 0; i /= 2) s[j] += __shfl_xor_sync(0xffffffffu, s[j], i);
      if (first + j * GROUPS + mine >= length) s[j] = -INFINITY;
      higher = fmaxf(higher, s[j]);
    }
    if (higher == -INFINITY) continue;  // this group of lanes has seen no key
    float correction = exp2_approx(max - higher);
    max = higher;
    sum *= correction;
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] *= correction;
#pragma unroll
    for (int j = 0; j < KEYS; ++j)
      if (first + j * GROUPS + mine < length) {
        float p = exp2_approx(s[j] - max);
        sum += p;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float2 two = __half22float2(v[j].pair[i]);
          out[2 * i] += p * two.x, out[2 * i + 1] += p * two.y;
        }
      }
  }

  if (lane == 0) m.max[mine] = max, m.sum[mine] = sum;
#pragma unroll
  for (int i = 0; i < 8; ++i) m.o[mine][8 * lane + i] = out[i];
  __syncthreads();
  if (threadIdx.x >= D) return;
  float top = -INFINITY, total = 0.0f, o = 0.0f;
  for (int g = 0; g < GROUPS; ++g) top = fmaxf(top, m.max[g]);
  for (int g = 0; g < GROUPS; ++g) {
    float weight = exp2_approx(m.max[g] - top);
    total += weight * m.sum[g], o += weight * m.o[g][threadIdx.x];
  }
  c.o[query + threadIdx.x] = __float2half(o / total);
}

}  // namespace lanes
