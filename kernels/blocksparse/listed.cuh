/* Rows of blocks with their lists, for the warpgroup kernel of the problem attention: 128 rows a block. */
#pragma once
#include <climits>
#include <type_traits>
#include "sparse.cuh"
#include "../attention/warpgroups/warpgroups.cuh"

namespace listed {

// IN_TURN: as rows lie. LONGEST_FIRST: forwards over the grid in one round, backwards in the next.
// EVEN: a row each, the longest first; then who has less takes more of the rest.
enum class Order { IN_TURN, LONGEST_FIRST, EVEN };

// EVEN: this block's part of what the first round leaves, of rows from the longest on.
struct Part {
  int from, to;
};
template <class P>
struct WithPart : warpgroups::Shared<P> {
  Part rest;
};
template <class P>
using Shared = std::conditional_t<P::ORDER == Order::EVEN, WithPart<P>, warpgroups::Shared<P>>;

__device__ __forceinline__ int sum_of_lanes(int x) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
  return x;
}

// The first warp's work before anything else. Blocks are filled up like vessels: `level` is what each
// holds at the end, but for those whose first row alone is longer; a row goes to the block that its
// middle falls to. In sixteenths of a tile and whole numbers, so that neighbours agree where they part.
__device__ __forceinline__ void share_out(Part& rest, const SparseAttention& a, int works) {
  const int grid = gridDim.x, mine = blockIdx.x, heads = a.heads, lane = threadIdx.x;
  auto length = [&](int rank) { return 16 * a.count(a.longest(rank)); };
  int total = 0;
  for (int rank = lane; rank < a.columns; rank += 32) total += length(rank) * heads;
  total = sum_of_lanes(total);

  int full = 0;  // so many blocks, the first, have more than the level with their first row
  for (int rank = 0; grid - full > heads && length(rank) * (grid - full) > total; ++rank)
    total -= length(rank) * heads, full += heads;
  const int level = total / (grid - full);
  auto takes = [&](int block) { return max(0, level - length(block / heads)); };
  int begins = 0;  // what the blocks before this one take of the rest
  for (int block = lane; block < mine; block += 32) begins += takes(block);
  begins = sum_of_lanes(begins);

  int part[2] = {works, works}, before = 0;  // before: of the rest, what lies ahead of these 32 ranks
  for (int base = grid / heads; base < a.columns; base += 32) {
    const int rank = base + lane, from = max(rank * heads, grid);
    const bool is = rank < a.columns;
    const int each = is ? length(rank) : 1, rows = is ? (rank + 1) * heads - from : 0;
    int start = before;
    for (int i = 0; i < 32; ++i) {
      const int other = __shfl_sync(0xffffffffu, each * rows, i);
      if (i < lane) start += other;
      before += other;
    }
    for (int i = 0; i < 2; ++i) {
      const int bound = begins + (i ? takes(mine) : 0) - start - each / 2;
      const int row = max(0, ceil_div(bound, each));
      int first = row < rows ? from + row : works;
#pragma unroll
      for (int j = 16; j > 0; j /= 2) first = min(first, __shfl_xor_sync(0xffffffffu, first, j));
      part[i] = min(part[i], first);
    }
  }
  if (mine == grid - 1) part[1] = works;
  if (lane == 0) rest = {part[0], part[1]};
}

// Which row of which head is `work`, and where its blocks are.
template <class P>
struct Works {
  int first, head, tiles = 0;
  const int* list = nullptr;
  __device__ __forceinline__ Works(const SparseAttention& a, int work, int works) {
    int row;
    if constexpr (P::ORDER != Order::IN_TURN) {
      const int grid = gridDim.x, round = work / grid;
      if constexpr (P::ORDER == Order::EVEN) {
        if (round) work = shared_memory<Shared<P>>().rest.from + round - 1;
      } else {
        if (round % 2) work = (2 * round + 1) * grid - 1 - work;
        if (work >= works) return;
      }
      row = a.longest(work / a.heads), head = work % a.heads;
    } else {
      row = work % a.columns, head = work / a.columns;
    }
    first = row * BLOCK, list = a.list(row), tiles = a.count(row);
  }
  static __device__ __forceinline__ int end(int works) {
    const int grid = gridDim.x;
    if constexpr (P::ORDER == Order::EVEN) {
      const Part rest = shared_memory<Shared<P>>().rest;
      return (1 + rest.to - rest.from) * grid;
    }
    return P::ORDER == Order::LONGEST_FIRST ? ceil_div(works, grid) * grid : works;
  }
  __device__ __forceinline__ int key(int tile) const { return list[tile] * BLOCK; }
};

template <int D, Order ORDER_>
struct Plan : warpgroups::Basic<D, 2, BLOCK, D == 64 ? 4 : 2, false> {
  static constexpr bool TURNS = D == 128, UNIFORM = true;
  static constexpr Order ORDER = ORDER_;
  static constexpr Maximum MAXIMUM = Maximum::NONE;
  using Input = SparseAttention;
  template <class P>
  using Works = listed::Works<P>;
};

template <class P>
__global__ void __launch_bounds__(warpgroups::Registers<P>::THREADS, 1)
    attend_listed(SparseAttention a, const __grid_constant__ warpgroups::Maps maps, int works) {
  if constexpr (P::ORDER == Order::EVEN)
    if (threadIdx.x < 32) share_out(shared_memory<Shared<P>>().rest, a, works);  // a barrier follows
  warpgroups::attend_block<P>(a, maps, works);
}

template <class P>
cudaError_t start(const SparseAttention& a, cudaStream_t stream) {
  int sms = 0, works = a.columns * a.heads;
  if (works > INT_MAX / 16 / a.columns) return cudaErrorNotSupported;  // share_out counts in 32 bits
  if (cudaError_t e = device_attribute<cudaDevAttrMultiProcessorCount>(&sms)) return e;
  warpgroups::Maps maps;
  if (cudaError_t e = tensor_map(&maps.q, a.q, P::D, a, 64)) return e;
  if (cudaError_t e = tensor_map(&maps.k, a.k, P::D, a, P::N)) return e;
  if (cudaError_t e = tensor_map(&maps.v, a.v, P::D, a, P::N)) return e;
  return launch<attend_listed<P>>({dim3(min(works, sms)), warpgroups::Registers<P>::THREADS,
                                   sizeof(Shared<P>)},
                                  stream, a, maps, works);
}

}  // namespace listed
