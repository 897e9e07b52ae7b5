/* The second launch of splits is there before the first has ended.

   Blocks of `split` say at their start that the next kernel may come: once the last of them has begun,
   blocks of `merge` lie beside them and wait, so that what is left when the last split ends is no launch.
   A block merges one query head: every thread asks for its element of all parts at once, while one warp
   works out what each part counts for.
*/
#pragma once
#include "splits.cuh"

namespace early {

using namespace splits;

constexpr int AHEAD = 16;  // splits whose elements a thread asks for at once

template <int D>
__global__ void __launch_bounds__(D) merge(Decode c, const Part<D>* space, int splits) {
  auto& weight = shared_memory<float[MOST]>();
  wait_for_earlier_kernels();
  const int query = blockIdx.x, sequence = blockIdx.y, d = threadIdx.x;
  const int head = query % c.group(), key_head = query / c.group();
  const Part<D>* parts = space + (static_cast<size_t>(sequence) * c.key_heads + key_head) * splits;
  float part[AHEAD];
#pragma unroll
  for (int j = 0; j < AHEAD; ++j) part[j] = j < splits ? parts[j].o[head][d] : 0.0f;
  if (d < 32) {
    float max[MOST / 32], top = -INFINITY, total = 0.0f;
#pragma unroll
    for (int i = 0; i < MOST / 32; ++i) {
      const int j = d + 32 * i;
      max[i] = j < splits ? parts[j].max[head] : -INFINITY;
      top = fmaxf(top, max[i]);
    }
    top = warp_max(top);
#pragma unroll
    for (int i = 0; i < MOST / 32; ++i) {
      const int j = d + 32 * i;
      max[i] = exp2_approx(max[i] - top);
      total += j < splits ? max[i] * parts[j].sum[head] : 0.0f;
    }
    total = warp_sum(total);
#pragma unroll
    for (int i = 0; i < MOST / 32; ++i) weight[d + 32 * i] = max[i] / total;
  }
  __syncthreads();
  float o = 0.0f;
#pragma unroll
  for (int j = 0; j < AHEAD; ++j) o += weight[j] * part[j];
  for (int j = AHEAD; j < splits; ++j) o += weight[j] * parts[j].o[head][d];
  c.o[(static_cast<size_t>(sequence) * c.heads + query) * D + d] = __float2half(o);
}

template <auto SPLIT, int D, int STEP>
inline int start(const Decode& c, size_t bytes, cudaStream_t stream) {
  return splits::start<SPLIT, D, STEP>(c, bytes, stream, [&](const Part<D>* parts, int splits) {
    return launch<merge<D>>({dim3(c.heads, c.batch), D, sizeof(float[MOST]), 1, true}, stream, c, parts,
                            splits);
  });
}

}  // namespace early
