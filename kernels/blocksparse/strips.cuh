/* 64 rows a block on mma.sync, as stage3b of the problem attention; which tiles of keys, a rung says. */
#pragma once
#include "sparse.cuh"
#include "../common/flash.cuh"

namespace strips {

constexpr int M = 64, N = 64, STAGES = 2, THREADS = 128;
constexpr float UNSEEN = -1e30f;  // a score: not -inf, for a row may not have seen any key yet

template <int D>
struct Shared {
  Tile<half, M, D, Swizzled> q;
  Tile<half, N, D, Swizzled> k[STAGES], v[STAGES];
};

// TILES(a, row of blocks): count, key(tile) of rising tiles, and whether a tile is seen.
template <int D, class TILES>
__device__ __forceinline__ void attend(const SparseAttention& a) {
  auto& m = shared_memory<Shared<D>>();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * M;
  const int head = blockIdx.y, row = first + 16 * warp;
  const half *k = head_of<D>(a.k, a, head), *v = head_of<D>(a.v, a, head);
  TILES tiles(a, first / BLOCK);
  auto fetch = [&](int tile) {
    if (tile < tiles.count) {
      copy_rows<THREADS>(m.k[tile % STAGES], k, tiles.key(tile), a.length, threadIdx.x);
      copy_rows<THREADS>(m.v[tile % STAGES], v, tiles.key(tile), a.length, threadIdx.x);
    }
    cp_async_commit();  // an empty group past the last tile
  };

  copy_rows<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length, threadIdx.x);
  for (int tile = 0; tile < STAGES - 1; ++tile) fetch(tile);
  flash::Rows<D> rows;
  rows.clear();
  for (int tile = 0; tile < tiles.count; ++tile) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // this tile is here, and the one before is used up
    fetch(tile + STAGES - 1);
    if (tile == 0) rows.load(m.q, 16 * warp, lane);
    float s[N / 8][4];
    flash::scores<N, D>(s, rows.q, m.k[tile % STAGES], 0, lane);
    flash::scale_scores(s, a.scale);
    const int key = tiles.key(tile);
    const bool seen = tiles.seen(key), edge = key + N > a.length;
    if (!seen || edge)
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (!seen || key + 8 * n + acc_col(lane, i) >= a.length) s[n][i] = UNSEEN;
    flash::softmax<N>(rows, s);
    flash::pv<N, D>(rows.out, s, m.v[tile % STAGES], 0, lane);
  }
  rows.store(head_of<D>(a.o, a, head), row, a.length, lane);
}

}  // namespace strips
