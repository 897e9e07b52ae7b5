/* Only the blocks that are seen are fetched and multiplied.

   A row of blocks goes through its list. The work falls with the mask, nine tenths of it at sparse89;
   but rows are no longer alike: a global row has 64 blocks and the others five, and its two thread
   blocks a head are still at work when the rest of the machine is idle.

   after: densemask      arch: 80+      case: sparse89
   moves: inst_matrix<0.15x instructions<0.15x
   budget: regs=255 smem=80K spills=0 stack=0
*/
#include "strips.cuh"

struct ListedTiles {
  static constexpr int SPLIT = BLOCK / strips::N;  // tiles a block
  int count;
  const int* list;
  __device__ __forceinline__ ListedTiles(const SparseAttention& a, int row)
      : count(a.count(row)), list(a.list(row)) {
    count *= SPLIT;
    while (count > 0 && key(count - 1) >= a.length) --count;  // the last block may be cut
  }
  __device__ __forceinline__ int key(int tile) const {
    return list[tile / SPLIT] * BLOCK + tile % SPLIT * strips::N;
  }
  __device__ __forceinline__ bool seen(int) const { return true; }
};

template <int D>
__global__ void __launch_bounds__(strips::THREADS, 1) skip_blocks(SparseAttention a) {
  strips::attend<D, ListedTiles>(a);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_sparse(args, [&](const SparseAttention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return int{launch<skip_blocks<D>>({dim3(ceil_div(a.length, strips::M), a.heads), strips::THREADS,
                                       sizeof(strips::Shared<D>)},
                                      args->stream, a)};
  });
}
