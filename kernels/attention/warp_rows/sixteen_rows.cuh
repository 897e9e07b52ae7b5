/* The v2c family's kernels on WMMA alone: 16 rows a warp, 16 keys at a time, all by way of shared memory.

   They differ in who copies the tiles of keys and when that is waited for, and in how the lanes of a warp
   share the softmax of 16 rows and 16 keys.
*/
#pragma once
#include "v2c.cuh"

namespace v2c {

constexpr int ROWS = 16, WORKERS = M / ROWS;  // rows a warp, warps that have rows

// STAGES: tiles of keys in the ring.
template <int D, int STAGES>
struct Shared {
  Tile<half, M, D, Padded> q;
  Tile<half, N, D, Padded> k[STAGES], v[STAGES];
  Tile<float, M, 16> s;  // 16 rows a warp: its scratch
  Tile<half, M, 16> p;
  Tile<float, M, D, Padded> out;
  Stats<M> stats;
};

// Scores of rows row … row+15 and 16 keys become probabilities in p; statistics follow. Every lane does
// all of it.
struct RedundantSoftmax {
  template <class S>
  __device__ __forceinline__ void operator()(const Attention& a, S& m, int row, int query,
                                             int key) const {
    int lane = threadIdx.x % 32;
    for (int r = 0; r < ROWS; ++r) {
      float old = m.stats.max[row + r], max = old, sum = 0.0f, mine = 0.0f;
      for (int col = 0; col < 16; ++col)
        if (a.sees(query + r, key + col)) max = fmaxf(max, *m.s.at(row + r, col) * a.scale);
      for (int col = 0; col < 16; ++col) {
        float x = *m.s.at(row + r, col) * a.scale - max;
        float p = exp_approx(a.sees(query + r, key + col) ? x : -INFINITY);
        sum += p;
        if (lane == col) mine = p;
      }
      float correction = exp_approx(old - max), total = m.stats.sum[row + r] * correction + sum;
      __syncwarp();  // everybody has read the row's statistics
      if (lane < 16) *m.p.at(row + r, lane) = __float2half(mine);
      if (lane == 0) {
        m.stats.max[row + r] = max;
        m.stats.sum[row + r] = total;
        m.stats.correction[row + r] = correction;
      }
    }
  }
};

// The same with two lanes a row, eight scores each.
struct LaneSoftmax {
  template <class S>
  __device__ __forceinline__ void operator()(const Attention& a, S& m, int row, int query,
                                             int key) const {
    int lane = threadIdx.x % 32, r = lane / 2, left = lane % 2 * 8;
    float x[8], old = m.stats.max[row + r], max = old, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      bool seen = a.sees(query + r, key + left + i);
      x[i] = seen ? *m.s.at(row + r, left + i) * a.scale : -INFINITY;
      max = fmaxf(max, x[i]);
    }
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float p = exp_approx(x[i] - max);
      sum += p;
      *m.p.at(row + r, left + i) = __float2half(p);
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    float correction = exp_approx(old - max), total = m.stats.sum[row + r] * correction + sum;
    __syncwarp();  // everybody has read the rows' statistics
    if (lane % 2 == 0) {
      m.stats.max[row + r] = max;
      m.stats.sum[row + r] = total;
      m.stats.correction[row + r] = correction;
    }
  }
};

// Attends to a tile of keys that is there: by the warps that have rows.
template <int D, class SOFTMAX, class S, class K>
__device__ __forceinline__ void attend(const Attention& a, S& m, const K& k, const K& v, int first,
                                       int tile) {
  int warp = threadIdx.x / 32, row = warp * ROWS;
  Accumulator acc;
  for (int key = 0; warp < WORKERS && key < N; key += 16) {
    wmma::fill_fragment(acc, 0.0f);
    multiply_add<RowsAreN>(acc, m.q, k, row, key, D);
    store(m.s, acc, row, 0);
    __syncwarp();
    SOFTMAX{}(a, m, row, first + row, tile + key);
    __syncwarp();
    rescale<ROWS, D>(m.out, m.stats, row);
    __syncwarp();
    multiply_into<D>(m.out, m.p, v, row, key);
    __syncwarp();
  }
}

// A kernel that loads each tile and waits for it.
template <int D, class SOFTMAX>
__device__ __forceinline__ void load_and_attend(const Attention& a) {
  auto& m = shared_memory<Shared<D, 1>>();
  int warp = threadIdx.x / 32, first = blockIdx.x * M, head = blockIdx.y;
  int row = warp * ROWS;  // of this warp

  load_rows<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length);
  if (warp < WORKERS) clear<ROWS, D>(m.out, m.stats, row);

  for (int tile = 0; tile < a.keys(first + M); tile += N) {
    __syncthreads();  // the tile before is used up
    load_rows<THREADS>(m.k[0], head_of<D>(a.k, a, head), tile, a.length);
    load_rows<THREADS>(m.v[0], head_of<D>(a.v, a, head), tile, a.length);
    __syncthreads();
    attend<D, SOFTMAX>(a, m, m.k[0], m.v[0], first, tile);
  }
  if (warp < WORKERS)
    store_rows<ROWS, D>(a, head_of<D>(a.o, a, head), m.out, m.stats, row, first + row);
}

}  // namespace v2c
