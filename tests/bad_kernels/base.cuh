/* A plain attention kernel with places where it can be made wrong, one at a time.

   One warp a query row, 32 keys a tile, everything in fp32: slow, and right as it stands (right.cu,
   which every check passes). A bad kernel is this one with one member of Bug changed.
*/
#pragma once
#include "../../kernels/common/variant.cuh"
#include <cuda_fp16.h>

struct Right {
  static constexpr int warps = 4;
  static constexpr bool barrier = true;        // between filling a tile and using it
  static constexpr bool own_row = true;        // a row's maximum belongs to one warp
  static constexpr bool slot_order = true;     // accumulators are stored where they belong
  static constexpr bool whole_tile = true;     // the loader loads every element of a tile
  static constexpr bool masked_load = true;    // keys behind the end are not read
  static constexpr bool masked_store = true;   // nor written
  static constexpr bool last_row = true;       // the last row is written
  static constexpr bool clean_start = true;    // the output is not read
  static constexpr bool finite = true;         // nothing divides by zero
  static constexpr bool pure = true;           // inputs stay as they are
  static constexpr bool decoded = true;        // v is what its code says
  static constexpr bool together = true;       // the warps of a block meet at the same barriers
};

constexpr int N = 32;
constexpr unsigned ALL = 0xffffffffu;

template <class Bug, int D>
__global__ void attention(const half* q, const half* k, const half* v, half* o, int S, float scale,
                          int causal) {
  __shared__ float ks[N][D + 1], vs[N][D], qs[Bug::warps][D], shared_max[Bug::warps];
  constexpr int THREADS = 32 * Bug::warps;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = blockIdx.x * Bug::warps + warp;
  const size_t head = static_cast<size_t>(blockIdx.y) * S * D;
  const bool inside = row < S;

  for (int d = lane; d < D; d += 32) {
    float x = inside ? __half2float(q[head + size_t(row) * D + d]) * scale : 0.f;
    if (!Bug::pure && inside) const_cast<half*>(q)[head + size_t(row) * D + d] = __float2half(x);
    qs[warp][d] = x;
  }
  if (lane == 0) shared_max[warp] = -INFINITY;
  float acc[D / 32] = {}, max = -INFINITY, sum = 0.f;
  __syncthreads();

  const int keys = causal ? min(S, (int(blockIdx.x) + 1) * Bug::warps) : S;
  for (int first = 0; first < keys; first += N) {
    const int trips = Bug::whole_tile ? (N * D + THREADS - 1) / THREADS : N * D / THREADS;
    for (int t = 0; t < trips; ++t) {
      const int i = t * THREADS + threadIdx.x;
      if (i >= N * D) break;
      const int key = first + i / D;
      const bool read = !Bug::masked_load || key < S;
      float y = key < S ? __half2float(v[head + size_t(key) * D + i % D]) : 0.f;
      if (!Bug::decoded && y != 0.f) y += exp2f(floorf(log2f(fabsf(y))) - 4.f);  // half a code up
      ks[i / D][i % D] = read ? __half2float(k[head + size_t(key) * D + i % D]) : 0.f;
      vs[i / D][i % D] = y;
    }
    if (Bug::barrier) __syncthreads();

    const int key = first + lane;
    float score = -INFINITY;
    if (key < S && (!causal || key <= row)) {
      score = 0.f;
      for (int d = 0; d < D; ++d) score += qs[warp][d] * ks[lane][d];
    }
    float top = score;
    for (int i = 16; i; i /= 2) top = fmaxf(top, __shfl_xor_sync(ALL, top, i));
    if (!Bug::own_row) {  // two warps keep the maximum of their two rows in one place
      if (lane == 0) shared_max[warp / 2] = fmaxf(shared_max[warp / 2], fmaxf(max, top));
      __syncwarp();
      top = shared_max[warp / 2];
    }
    const float next = fmaxf(max, top);
    const float old = max == -INFINITY ? 0.f : __expf(max - next);
    const float p = score == -INFINITY ? 0.f : __expf(score - next);
    float all = p;
    for (int i = 16; i; i /= 2) all += __shfl_xor_sync(ALL, all, i);
    sum = sum * old + all;
    for (int i = 0; i < D / 32; ++i) acc[i] *= old;
    for (int j = 0; j < N; ++j) {
      const float pj = __shfl_sync(ALL, p, j);
      for (int i = 0; i < D / 32; ++i) acc[i] += pj * vs[j][i * 32 + lane];
    }
    max = next;
    if (Bug::together || inside)
      __syncthreads();
    else
      asm volatile("bar.sync 0;" ::: "memory");
  }

  if (Bug::masked_store && !inside) return;
  if (!Bug::last_row && row == S - 1) return;
  for (int i = 0; i < D / 32; ++i) {
    int d = i * 32 + lane, to = row;
    if (!Bug::slot_order && ((row ^ d) & 8) && (row | 15) < S) d ^= 8, to ^= 8;
    half* place = o + head + size_t(to) * D + d;
    float out = acc[i] / (Bug::finite || row != S / 2 ? sum : 0.f * sum);
    if (!Bug::clean_start) out += 0.f * __half2float(*place);
    *place = __float2half(out);
  }
}

template <class Bug>
int start(const ProfkitArgs* a, cudaStream_t stream) {
  const int heads = int(a->size[0] * a->size[1]), S = int(a->size[2]), D = int(a->size[3]);
  const dim3 grid((S + Bug::warps - 1) / Bug::warps, heads);
  auto q = static_cast<const half*>(a->in[0]), k = static_cast<const half*>(a->in[1]),
       v = static_cast<const half*>(a->in[2]);
  auto o = static_cast<half*>(a->out[0]);
  if (D == 64)
    attention<Bug, 64><<<grid, 32 * Bug::warps, 0, stream>>>(q, k, v, o, S, a->scale, a->causal);
  else if (D == 128)
    attention<Bug, 128><<<grid, 32 * Bug::warps, 0, stream>>>(q, k, v, o, S, a->scale, a->causal);
  else
    return cudaErrorNotSupported;
  return cudaGetLastError();
}

#define PROFKIT_VARIANT(Bug) \
  extern "C" int profkit_launch(const ProfkitArgs* a) { return start<Bug>(a, a->stream); }
