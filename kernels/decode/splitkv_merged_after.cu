/* The keys of a sequence over as many blocks as the machine holds, and a second launch that merges.

   A block a key head and sequence is 32 blocks at 16k-8 and 4 at 4k-1, for 132 SMs: most of the machine
   asks DRAM for nothing. Here each sequence is cut into splits, as many as fill whole rounds of resident
   blocks best; each leaves its maximum, sum and output in a workspace, and a small kernel that is there
   before the last block has gone adds them up. One split writes the output itself.

   after: shared      fixes: grid-too-small      arch: 90+      case: 16k-8
   moves: sm_active>2x
   budget: regs=255 smem=40K spills=0 stack=0
*/
#include "splits.cuh"

using namespace splits;

template <int D>
__global__ void __launch_bounds__(THREADS) split(Decode c, Part<D>* space) {
  auto& parts = shared_memory<Part<D>[WARPS]>();
  const Share share(c);
  Warp<D> warp(c, blockIdx.z, blockIdx.y);
  warp.attend(share.first, share.end);
  warp.leave(parts[threadIdx.x / 32]);
  __syncthreads();
  leave_block<D>(c, parts, space);
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

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_cache(args, [&](const Decode& c, auto d) {
    constexpr int D = decltype(d)::value;
    auto merged = [&](const Part<D>* parts, int splits) {
      return launch<merge<D>>({dim3(c.key_heads, c.batch), THREADS, 0, 1, true}, args->stream, c, parts,
                              splits);
    };
    return start<split<D>, D, Warp<D>::STEP>(c, sizeof(Part<D>[WARPS]), args->stream, merged);
  });
}
