/* A warp a row, for warprow and widewarp, which load and store eights in their own way. */
#pragma once
#include "norm.cuh"

constexpr int ROWS = 4;  // a block

__device__ __forceinline__ float sum_of_lanes(float x) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
  return x;
}

// V eights a lane. load(p, i) and store(p, i, eight): eight number i of an array.
template <bool RMS, int V, class T, class Load, class Store>
__device__ __forceinline__ void norm_warp_rows(const Norm<T>& n, Load load, Store store) {
  const int index = blockIdx.x * ROWS + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (index >= n.rows) return;
  const int eights = n.width / 8;
  const size_t row = static_cast<size_t>(index) * eights;
  Eight<T> h[V], r[V];
#pragma unroll
  for (int v = 0, i = lane; v < V; ++v, i += 32)
    if (i < eights) h[v] = load(n.x, row + i), r[v] = load(n.r, row + i);
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int v = 0, i = lane; v < V; ++v, i += 32)
    if (i < eights) {
      sum += h[v].add(r[v]);
      store(n.h, row + i, h[v]);
    }
  float mean = RMS ? 0.0f : sum_of_lanes(sum) / n.width;
#pragma unroll
  for (int v = 0, i = lane; v < V; ++v, i += 32)
    if (i < eights) squares += h[v].squares(mean);
  float factor = rsqrtf(sum_of_lanes(squares) / n.width + n.eps);
#pragma unroll
  for (int v = 0, i = lane; v < V; ++v, i += 32)
    if (i < eights) {
      Eight<T> w = load(n.w, i), b = w;
      if (!RMS) b = load(n.b, i);
      store(n.y, row + i, h[v].template norm<RMS>(mean, factor, w, b));
    }
}
