/* What every variant is given: h = x + r, rounded, and y = norm(h) w + b; fp16 or bf16 with fp32 between.

   LayerNorm: (h - mean) / sqrt(variance + eps). RMSNorm: h / sqrt(mean of squares + eps), no b.
   The variance is taken of h - mean, in a second look at the row: as mean of squares minus square of
   mean it would have no digits left where the mean is large.
*/
#pragma once
#include <cstddef>
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#include "../common/launch.cuh"
#include "../common/variant.cuh"

template <class T>
struct Norm {
  const T *x, *r;  // (rows, width)
  const T *w, *b;  // (width)
  T *y, *h;        // (rows, width)
  int rows, width;
  float eps;
};

__device__ __forceinline__ float to_float(half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void round_to(half* y, float x) { *y = __float2half_rn(x); }
__device__ __forceinline__ void round_to(__nv_bfloat16* y, float x) { *y = __float2bfloat16_rn(x); }

// The residual sum, rounded as it is stored.
template <class T>
__device__ __forceinline__ T residual(T x, T r) {
  T h;
  round_to(&h, to_float(x) + to_float(r));
  return h;
}

__device__ __forceinline__ float2 to_floats(half2 x) { return __half22float2(x); }
__device__ __forceinline__ float2 to_floats(__nv_bfloat162 x) { return __bfloat1622float2(x); }
__device__ __forceinline__ void round_to(half2* y, float2 x) { *y = __floats2half2_rn(x.x, x.y); }
__device__ __forceinline__ void round_to(__nv_bfloat162* y, float2 x) {
  *y = __floats2bfloat162_rn(x.x, x.y);
}

// Eight elements: what one thread loads and stores at a time, and keeps in four registers.
template <class T>
struct alignas(16) Eight {
  using Pair = std::conditional_t<std::is_same_v<T, half>, half2, __nv_bfloat162>;
  Pair pair[4];

  // This row's x becomes h = x + r; returns the sum of the eight.
  __device__ __forceinline__ float add(const Eight& r) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float2 a = to_floats(pair[i]), b = to_floats(r.pair[i]);
      round_to(&pair[i], make_float2(a.x + b.x, a.y + b.y));
      float2 h = to_floats(pair[i]);
      sum += h.x + h.y;
    }
    return sum;
  }
  __device__ __forceinline__ float squares(float mean) const {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float2 h = to_floats(pair[i]);
      sum += (h.x - mean) * (h.x - mean) + (h.y - mean) * (h.y - mean);
    }
    return sum;
  }
  // (h - mean) factor w + b; no b for RMSNorm.
  template <bool RMS>
  __device__ __forceinline__ Eight norm(float mean, float factor, const Eight& w,
                                        const Eight& b) const {
    Eight y;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float2 h = to_floats(pair[i]), scale = to_floats(w.pair[i]), shift = make_float2(0.0f, 0.0f);
      if (!RMS) shift = to_floats(b.pair[i]);
      round_to(&y.pair[i], make_float2((h.x - mean) * factor * scale.x + shift.x,
                                       (h.y - mean) * factor * scale.y + shift.y));
    }
    return y;
  }
};

template <class T>
__device__ __forceinline__ const Eight<T>* eights_of(const T* p) {
  return reinterpret_cast<const Eight<T>*>(p);
}
template <class T>
__device__ __forceinline__ Eight<T>* eights_of(T* p) {
  return reinterpret_cast<Eight<T>*>(p);
}

// The sum over the threads of a block of WARPS warps or fewer, for all of them. `scratch` is used up:
// the next sum needs another one, or a barrier between.
template <int WARPS>
__device__ __forceinline__ float block_sum(float x, float (&scratch)[WARPS], int warps) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
  if (warps == 1) return x;
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < WARPS; ++i) sum += i < warps ? scratch[i] : 0.0f;
  return sum;
}

// Checks args and calls f(norm, std::bool_constant<RMS>).
template <class F>
inline int on_norm(const ProfkitArgs* args, F f) {
  const long long* n = args->size;
  if (n[0] < 0 || n[1] < 0) return cudaErrorInvalidValue;
  if (n[0] == 0 || n[1] == 0) return cudaSuccess;
  if (n[0] > (1 << 30) || n[1] > (1 << 20)) return cudaErrorNotSupported;
  auto with = [&](auto element) {
    using T = decltype(element);
    auto in = [&](int i) { return static_cast<const T*>(args->in[i]); };
    Norm<T> norm = {in(0), in(1), in(2), in(3), static_cast<T*>(args->out[0]),
                    static_cast<T*>(args->out[1]), static_cast<int>(n[0]), static_cast<int>(n[1]),
                    args->scale};
    return n[2] ? f(norm, std::true_type{}) : f(norm, std::false_type{});
  };
  return n[3] ? with(__nv_bfloat16{}) : with(half{});
}

// Whether all rows begin at 16 bytes, so that eight elements are one access.
template <class T>
inline bool in_eights(const Norm<T>& n) {
  uintptr_t all = 0;
  for (const void* p : {static_cast<const void*>(n.x), static_cast<const void*>(n.r),
                        static_cast<const void*>(n.w), static_cast<const void*>(n.b),
                        static_cast<const void*>(n.y), static_cast<const void*>(n.h)})
    all |= reinterpret_cast<uintptr_t>(p);
  return n.width % 8 == 0 && all % 16 == 0;
}
