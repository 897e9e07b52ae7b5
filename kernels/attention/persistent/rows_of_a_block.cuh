/* stage3b with one block per SM, for tailwave and persistent, which differ in what rows a block has. */
#pragma once
#include "../../common/flash.cuh"

constexpr int M = 64, N = 64, STAGES = 2, THREADS = 128;

template <int D>
struct Shared {
  Tile<half, M, D, Swizzled> q;
  Tile<half, N, D, Swizzled> k[STAGES], v[STAGES];
};

// Rows first … end-1 of a head, at most M; 16 a warp.
template <int D>
__device__ __forceinline__ void attend(const Attention& a, Shared<D>& m, int head, int first, int end,
                                       int lane, int warp) {
  const half *k = head_of<D>(a.k, a, head), *v = head_of<D>(a.v, a, head);
  int tiles = ceil_div(a.keys(end), N), row = first + 16 * warp;
  auto fetch = [&](int tile) {
    if (tile < tiles) {
      copy_rows<THREADS>(m.k[tile % STAGES], k, tile * N, a.length, threadIdx.x);
      copy_rows<THREADS>(m.v[tile % STAGES], v, tile * N, a.length, threadIdx.x);
    }
    cp_async_commit();  // an empty group past the last tile
  };

  copy_rows<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length, threadIdx.x);
  for (int tile = 0; tile < STAGES - 1; ++tile) fetch(tile);
  flash::Rows<D> rows;
  rows.clear();

  for (int tile = 0; tile < tiles; ++tile) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // this tile is here, and the one before is used up
    fetch(tile + STAGES - 1);
    if (tile == 0) rows.load(m.q, 16 * warp, lane);

    if (row >= end) continue;  // no rows for this warp; the barrier is above
    float s[N / 8][4];
    flash::scores<N, D>(s, rows.q, m.k[tile % STAGES], 0, lane);
    flash::scale_scores(s, a.scale);
    if (flash::at_edge<N>(a, row, tile * N)) flash::mask<N>(a, s, row, tile * N, lane);
    flash::softmax<N>(rows, s);
    flash::pv<N, D>(rows.out, s, m.v[tile % STAGES], 0, lane);
  }
  rows.store(head_of<D>(a.o, a, head), row, end, lane);
}

// How many SMs, and all of the shared memory of one, in bytes: what a block asks for to be alone there.
template <int D>
inline int one_block_an_sm(int* sms, int* shared) {
  if (int e = device_attribute<cudaDevAttrMultiProcessorCount>(sms)) return e;
  if (int e = device_attribute<cudaDevAttrMaxSharedMemoryPerBlockOptin>(shared)) return e;
  return *shared < static_cast<int>(sizeof(Shared<D>)) ? cudaErrorNotSupported : cudaSuccess;
}
