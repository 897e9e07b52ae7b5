/* Rows of blocks with their lists, for the warpgroup kernel of the problem attention: 128 rows a block. */
#pragma once
#include "sparse.cuh"
#include "../attention/warpgroups/warpgroups.cuh"

namespace listed {

// Which row of which head is `work`, and where its blocks are.
template <class P>
struct Works {
  int first, head, tiles = 0;
  const int* list = nullptr;
  __device__ __forceinline__ Works(const SparseAttention& a, int work, int works) {
    int row;
    if constexpr (P::LONGEST_FIRST) {  // forwards over the blocks in one round, backwards in the next
      const int grid = gridDim.x, round = work / grid;
      if (round % 2) work = (2 * round + 1) * grid - 1 - work;
      if (work >= works) return;
      row = a.longest(work / a.heads), head = work % a.heads;
    } else {
      row = work % a.columns, head = work / a.columns;
    }
    first = row * BLOCK, list = a.list(row), tiles = a.count(row);
  }
  static __device__ __forceinline__ int end(int works) {
    const int grid = gridDim.x;
    return P::LONGEST_FIRST ? ceil_div(works, grid) * grid : works;
  }
  __device__ __forceinline__ int key(int tile) const { return list[tile] * BLOCK; }
};

template <int D, bool LONGEST>
struct Plan : warpgroups::Basic<D, 2, BLOCK, D == 64 ? 4 : 2, false> {
  static constexpr bool TURNS = D == 128, UNIFORM = true, LONGEST_FIRST = LONGEST;
  static constexpr Maximum MAXIMUM = Maximum::NONE;
  using Input = SparseAttention;
  template <class P>
  using Works = listed::Works<P>;
};

template <class P>
__global__ void __launch_bounds__(warpgroups::Registers<P>::THREADS, 1)
    attend_listed(SparseAttention a, const __grid_constant__ warpgroups::Maps maps, int works) {
  warpgroups::attend_block<P>(a, maps, works);
}

template <class P>
cudaError_t start(const SparseAttention& a, cudaStream_t stream) {
  int sms = 0, works = a.columns * a.heads;
  if (cudaError_t e = device_attribute<cudaDevAttrMultiProcessorCount>(&sms)) return e;
  warpgroups::Maps maps;
  if (cudaError_t e = tensor_map(&maps.q, a.q, P::D, a, 64)) return e;
  if (cudaError_t e = tensor_map(&maps.k, a.k, P::D, a, P::N)) return e;
  if (cudaError_t e = tensor_map(&maps.v, a.v, P::D, a, P::N)) return e;
  return launch<attend_listed<P>>({dim3(min(works, sms)), warpgroups::Registers<P>::THREADS,
                                   sizeof(warpgroups::Shared<P>)},
                                  stream, a, maps, works);
}

}  // namespace listed
