/* The keys of a sequence cut into splits, a block each; a second launch of the rung adds them up. */
#pragma once
#include "grouped.cuh"
#include "../common/pool.cuh"
#include "../common/sm90.cuh"

namespace splits {

using namespace grouped;

constexpr int MOST = 64;  // splits

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

// SPLIT takes the cache and the workspace; a block takes STEP keys at a time, BYTES of shared memory.
// merge(parts, splits) launches what adds up more than one.
template <auto SPLIT, int D, int STEP, class Merge>
inline int start(const Decode& c, size_t bytes, cudaStream_t stream, Merge merge) {
  if (!fits(c)) return cudaErrorNotSupported;
  int resident = 0, works = c.batch * c.key_heads;
  if (int e = resident_blocks<SPLIT>(THREADS, bytes, &resident)) return e;
  const int splits = splits_for(c.page * c.pages, STEP, works, resident);
  Workspace space(splits > 1 ? sizeof(Part<D>) * works * splits : 1, stream);
  if (space.error) return space.error;
  auto* parts = static_cast<Part<D>*>(space.data);
  if (int e = launch<SPLIT>({dim3(splits, c.key_heads, c.batch), THREADS, bytes}, stream, c, parts))
    return e;
  return splits == 1 ? cudaSuccess : merge(static_cast<const Part<D>*>(parts), splits);
}

}  // namespace splits
