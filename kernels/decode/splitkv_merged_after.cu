/* The keys of a sequence over as many blocks as the machine holds, and a second launch that merges.

   A block a key head and sequence is 32 blocks at 16k-8 and 4 at 4k-1, for 132 SMs: most of the machine
   asks DRAM for nothing. Here each sequence is cut into splits, as many as fill whole rounds of resident
   blocks best; each leaves its maximum, sum and output in a workspace, and a small kernel that is there
   before the last block has gone adds them up. One split writes the output itself.

   after: shared      fixes: grid-too-small      arch: 90+      case: 16k-8
   moves: sm_active>2x
   budget: regs=255 smem=40K spills=0 stack=0
*/
#include "grouped.cuh"
#include "../common/pool.cuh"
#include "../common/sm90.cuh"

using namespace grouped;

template <int D>
__global__ void __launch_bounds__(THREADS) split(Decode c, Part<D>* space) {
  auto& parts = shared_memory<Part<D>[WARPS]>();
  const int splits = gridDim.x, key_head = blockIdx.y, sequence = blockIdx.z;
  const int length = c.length(sequence), keys = ceil_div(ceil_div(length, splits), 16) * 16;
  const int first = blockIdx.x * keys, end = first + keys < length ? first + keys : length;
  Warp<D> warp(c, sequence, key_head);
  warp.attend(first, end);
  warp.leave(parts[threadIdx.x / 32]);
  __syncthreads();
  Part<D>* mine = space + (static_cast<size_t>(sequence) * c.key_heads + key_head) * splits + blockIdx.x;
  add_up<D>(
      WARPS, c.group(), [&](int i) -> const Part<D>& { return parts[i]; },
      [&](int head, int d, float o, float max, float sum) {
        if (splits == 1) return store<D>(c, sequence, key_head, head, d, o, sum);
        mine->o[head][d] = o;
        if (d == 0) mine->max[head] = max, mine->sum[head] = sum;
      });
}

template <int D>
__global__ void __launch_bounds__(THREADS) merge(Decode c, const Part<D>* space, int splits) {
  wait_for_earlier_kernels();
  const int key_head = blockIdx.x, sequence = blockIdx.y;
  const Part<D>* parts = space + (static_cast<size_t>(sequence) * c.key_heads + key_head) * splits;
  add_up<D>(
      splits, c.group(), [&](int i) -> const Part<D>& { return parts[i]; },
      [&](int head, int d, float o, float, float sum) {
        store<D>(c, sequence, key_head, head, d, o, sum);
      });
}

// How many splits: the time of a block is its keys and, for its start and its part, OVERHEAD more.
inline int splits_for(int keys, int step, int works, int resident) {
  const int OVERHEAD = 256, most = ceil_div(keys, step) < 64 ? ceil_div(keys, step) : 64;
  int best = 1;
  long long least = INT64_MAX;
  for (int n = 1; n <= most; ++n) {
    long long time = ceil_div(works * n, resident) * static_cast<long long>(ceil_div(keys, n) + OVERHEAD);
    if (time < least) best = n, least = time;
  }
  return best;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_cache(args, [&](const Decode& c, auto d) {
    constexpr int D = decltype(d)::value;
    constexpr size_t BYTES = sizeof(Part<D>[WARPS]);
    if (!fits(c)) return int{cudaErrorNotSupported};
    int resident = 0, works = c.batch * c.key_heads;
    if (int e = resident_blocks<split<D>>(THREADS, BYTES, &resident)) return e;
    int splits = splits_for(c.page * c.pages, Warp<D>::STEP, works, resident);
    Workspace space(splits > 1 ? sizeof(Part<D>) * works * splits : 1, args->stream);
    if (space.error) return int{space.error};
    auto* parts = static_cast<Part<D>*>(space.data);
    if (int e = launch<split<D>>({dim3(splits, c.key_heads, c.batch), THREADS, BYTES}, args->stream, c,
                                 parts))
      return e;
    if (splits == 1) return int{cudaSuccess};
    return int{launch<merge<D>>({dim3(c.key_heads, c.batch), THREADS, 0, 1, true}, args->stream, c,
                                static_cast<const Part<D>*>(parts), splits)};
  });
}
