// Both products on the tensor cores, a ring of K and V tiles: what stage2, its two swizzles, stage3a and
// stage4 are. They differ in the number of tiles in the ring and in how tiles lie in shared memory.
#pragma once

#include "../../common/cp_async.cuh"
#include "stage.cuh"

namespace stage {

template <int D_, int STAGES_, template <int> class LAYOUT>
struct Plan {
  static constexpr int D = D_, STAGES = STAGES_;
  static constexpr bool P_OVER_S = false;  // probabilities overwrite the scores of their row
  struct Shared {
    Tile<half, M, D, LAYOUT> q;
    Tile<half, N, D, LAYOUT> k[STAGES], v[STAGES];
    Tile<float, M, N, LAYOUT> s;
    Tile<half, M, N, LAYOUT> p;
    Tile<float, 16, 32, LAYOUT> scratch[WARPS];
    Tile<float, M, D> out;
  };
};

template <class P>
__device__ __forceinline__ void tensor_block(const Attention& a) {
  constexpr int D = P::D, STAGES = P::STAGES;
  auto& m = shared_memory<typename P::Shared>();
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * M, head = blockIdx.y;
  const half *k = head_of<D>(a.k, a, head), *v = head_of<D>(a.v, a, head);
  int tiles = ceil_div(a.keys(first + M), N);
  auto fetch = [&](int tile) {
    if (tile < tiles) {
      copy_rows<THREADS>(m.k[tile % STAGES], k, tile * N, a.length, threadIdx.x);
      copy_rows<THREADS>(m.v[tile % STAGES], v, tile * N, a.length, threadIdx.x);
    }
    cp_async_commit();  // an empty group past the last tile
  };

  Softmax state;
  clear(m.out, D);
  copy_rows<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length, threadIdx.x);
  for (int tile = 0; tile < STAGES - 1; ++tile) fetch(tile);

  for (int tile = 0; tile < tiles; ++tile) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // this tile is here, and the one before is used up
    fetch(tile + STAGES - 1);
    scores(m.q, m.k[tile % STAGES], m.s, D);
    __syncthreads();

#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      int row = warp + WARPS * i;
      float score = *m.s.at(row, lane);
      if (P::P_OVER_S) __syncwarp();  // the row is read before probabilities overwrite it
      float p = softmax_row(a, state, i, m.out, score, row, first + row, tile * N + lane, D);
      *m.p.at(row, lane) = __float2half(p);
    }
    __syncthreads();
    tensor_pv(m.p, m.v[tile % STAGES], m.scratch[warp], m.out, D);
  }
  __syncthreads();
  store(a, state, m.out, head_of<D>(a.o, a, head), first, D);
}

template <class P, auto KERNEL>
int launch_tensor_block(const Attention& a, cudaStream_t stream) {
  return launch<KERNEL>(
      {dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(typename P::Shared)}, stream, a);
}

}  // namespace stage
