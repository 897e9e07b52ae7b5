/* What every attention variant is given: o = softmax(scale q k^T) v, one matrix per head.

   fp16 in and out, fp32 in between, (B,H,S,D) contiguous; causal: key j is seen by row i if j <= i.
*/
#pragma once
#include <cstddef>
#include <cstdint>
#include <cuda_fp16.h>
#include <type_traits>

#include "launch.cuh"
#include "ptx.cuh"
#include "variant.cuh"

struct Attention {
  const half *q, *k, *v;  // (heads, length, D), 16-byte aligned
  half* o;                // (heads, length, D)
  int heads;              // B*H
  int length;             // S: queries and keys
  float scale;
  int causal;

  // The key at `key` counts for the query at `row`.
  __host__ __device__ __forceinline__ bool sees(int row, int key) const {
    return key < length && (!causal || key <= row);
  }
  // Keys that the rows before `end` can see.
  __host__ __device__ __forceinline__ int keys(int end) const {
    return causal && end < length ? end : length;
  }
};

constexpr float LOG2E = 1.4426950408889634f;

template <class T>
__host__ __device__ constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

// The matrix of one head.
template <int D, class T>
__device__ __forceinline__ T* head_of(T* x, const Attention& a, int head) {
  return x + static_cast<size_t>(head) * a.length * D;
}

__device__ __forceinline__ float exp_approx(float x) { return exp2_approx(x * LOG2E); }

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
  return x;
}
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
  return x;
}

// Checks args and calls f(attention, std::integral_constant<int, D>) for the head dimension, which
// must be one of DIMS. f launches with grid (tiles, heads), so there are at most 65535 heads.
template <int... DIMS, class F>
inline int on_head_dim(const ProfkitArgs* args, F f) {
  const long long *n = args->size, heads = n[0] * n[1];
  if (n[0] < 0 || n[1] < 0 || n[2] < 0) return cudaErrorInvalidValue;
  if (heads == 0 || n[2] == 0) return cudaSuccess;
  if (n[0] > 65535 || n[1] > 65535 || heads > 65535 || n[2] > (1 << 20))
    return cudaErrorNotSupported;
  uintptr_t addresses = 0;
  for (int i = 0; i < 3; ++i) addresses |= reinterpret_cast<uintptr_t>(args->in[i]);
  if ((addresses | reinterpret_cast<uintptr_t>(args->out[0])) % 16) return cudaErrorInvalidValue;
  Attention a = {static_cast<const half*>(args->in[0]),
                 static_cast<const half*>(args->in[1]),
                 static_cast<const half*>(args->in[2]),
                 static_cast<half*>(args->out[0]),
                 static_cast<int>(heads),
                 static_cast<int>(n[2]),
                 args->scale,
                 args->causal != 0};
  int result = cudaErrorNotSupported;
  auto attempt = [&](auto d) {
    if (n[3] == decltype(d)::value) result = f(a, d);
  };
  (attempt(std::integral_constant<int, DIMS>{}), ...);
  return result;
}
