/* How many splits, and a second launch that is there before the first has ended.

   Blocks of `split` say at their start that the next kernel may come: once the last of them has begun,
   blocks of `merge` lie beside them and wait, so that what is left when the last split ends is no launch.
   A block merges one query head: every thread asks for its element of all parts at once, while one warp
   works out what each part counts for.
*/
#pragma once
#include "grouped.cuh"
#include "../common/pool.cuh"
#include "../common/sm90.cuh"

namespace early {

using namespace grouped;

constexpr int MOST = 64, AHEAD = 16;  // splits; of them, how many elements a thread asks for at once

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

// Keys `first` … `end`-1 are those of this block; its grid is (splits, key heads, sequences).
struct Share {
  int first, end;
  __device__ __forceinline__ Share(const Decode& c) {
    const int length = c.length(blockIdx.z), splits = gridDim.x;
    const int keys = ceil_div(ceil_div(length, splits), 16) * 16;
    first = blockIdx.x * keys, end = first + keys < length ? first + keys : length;
  }
};

// Adds up what the warps of a block left: the output, if there is one split, else this split's part.
template <int D>
__device__ __forceinline__ void leave_block(const Decode& c, const Part<D> (&parts)[WARPS],
                                            Part<D>* space) {
  const int splits = gridDim.x, key_head = blockIdx.y, sequence = blockIdx.z;
  Part<D>* mine = space + (static_cast<size_t>(sequence) * c.key_heads + key_head) * splits + blockIdx.x;
  add_up<D>(
      WARPS, c.group(), [&](int i) -> const Part<D>& { return parts[i]; },
      [&](int head, int d, float o, float max, float sum) {
        if (splits == 1) return store<D>(c, sequence, key_head, head, d, o, sum);
        mine->o[head][d] = o;
        if (d == 0) mine->max[head] = max, mine->sum[head] = sum;
      });
}

// The time of a block is its keys and, for its start and its part, OVERHEAD more.
inline int splits_for(int keys, int step, int works, int resident) {
  const int OVERHEAD = 256, most = ceil_div(keys, step) < MOST ? ceil_div(keys, step) : MOST;
  int best = 1;
  long long least = INT64_MAX;
  for (int n = 1; n <= most; ++n) {
    long long time = ceil_div(works * n, resident) * static_cast<long long>(ceil_div(keys, n) + OVERHEAD);
    if (time < least) best = n, least = time;
  }
  return best;
}

// SPLIT takes the cache and the workspace; a block takes STEP keys at a time.
template <auto SPLIT, int D, int STEP>
inline int start(const Decode& c, size_t bytes, cudaStream_t stream) {
  if (!fits(c)) return cudaErrorNotSupported;
  int resident = 0, works = c.batch * c.key_heads;
  if (int e = resident_blocks<SPLIT>(THREADS, bytes, &resident)) return e;
  const int splits = splits_for(c.page * c.pages, STEP, works, resident);
  Workspace space(splits > 1 ? sizeof(Part<D>) * works * splits : 1, stream);
  if (space.error) return space.error;
  auto* parts = static_cast<Part<D>*>(space.data);
  if (int e = launch<SPLIT>({dim3(splits, c.key_heads, c.batch), THREADS, bytes}, stream, c, parts))
    return e;
  if (splits == 1) return cudaSuccess;
  return launch<merge<D>>({dim3(c.heads, c.batch), D, sizeof(float[MOST]), 1, true}, stream, c,
                          static_cast<const Part<D>*>(parts), splits);
}

}  // namespace early
