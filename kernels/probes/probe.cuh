/* What every probe uses: which build this is, how it is started, loads that compilers must keep.

   A probe is built twice: plain, and with -DPROFKIT_TWIN when its header says `twin: yes`. Buffers
   are at least kBufferBytes each (size[0]) and filled as kernels/probes/problem.py says; out[0]
   holds float32 results, one for each thread or item, out[1] is scratch that starts as zeros.
*/
#pragma once
#include <cstdint>

#include "../common/variant.cuh"

#ifdef PROFKIT_TWIN
constexpr bool kTwin = true;
#else
constexpr bool kTwin = false;
#endif

constexpr long long kBufferBytes = 1LL << 30;
constexpr unsigned kBufferWords = 1u << 28;

// in[2][i] == (kChaseA * i + kChaseC) mod kBufferWords: one cycle through all words, and through
// the first 2^k words when masked to k bits, because it is a full-period generator.
constexpr unsigned kChaseA = 1664525u;
constexpr unsigned kChaseC = 1013904223u;

inline int sm_count() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

// Dynamic shared memory per block that lets exactly this many blocks live on an SM.
inline int shared_for_blocks(int blocks) {
  int device = 0, bytes = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
  return bytes / (blocks + 1);
}

template <typename... Params, typename... Values>
int start(const ProfkitArgs* args, void (*kernel)(Params...), int grid, int block,
          int dynamic_shared, Values... values) {
  if (args->size[0] < kBufferBytes) return cudaErrorNotSupported;
  if (dynamic_shared > 48 * 1024) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic_shared);
    if (error != cudaSuccess) return error;
  }
  kernel<<<grid, block, dynamic_shared, args->stream>>>(values...);
  return cudaGetLastError();
}

__device__ __forceinline__ unsigned thread_slot() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ unsigned thread_count() { return gridDim.x * blockDim.x; }

// The compiler may not know the value afterwards, nor remove or move what made it.
__device__ __forceinline__ void opaque(float& value) { asm volatile("" : "+f"(value)); }
__device__ __forceinline__ void opaque(unsigned& value) { asm volatile("" : "+r"(value)); }

// Memory may have changed: loads before it are not reused after it, and none moves across it.
__device__ __forceinline__ void forget_memory() {
  __syncwarp();
  asm volatile("" ::: "memory");
}

// Shared loads that are done as often as they are written, one by one.
__device__ __forceinline__ float load_shared_again(unsigned address) {
  float value;
  asm volatile("ld.volatile.shared.f32 %0, [%1];" : "=f"(value) : "r"(address));
  return value;
}

__device__ __forceinline__ float4 load_shared4_again(unsigned address) {
  float4 value;
  asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(address));
  return value;
}

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Four chains of fused multiply-adds side by side, which fill the FP32 pipe from few warps. (A
// single chain does not even from many: three register operands and no reuse between instructions
// of other warps make the register file the limit; see the dispatch probe.)
__device__ __forceinline__ float fma_work(float x, float a, float b, int steps) {
  float v[4] = {x, x + 1.0f, x + 2.0f, x + 3.0f};
#pragma unroll 16
  for (int i = 0; i < steps; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = fmaf(v[k], a, b);
  }
  return 0.25f * ((v[0] + v[1]) + (v[2] + v[3]));
}

// One chain of fused multiply-adds, each waiting for the one before.
__device__ __forceinline__ float fma_chain(float x, float a, float b, int steps) {
#pragma unroll 16
  for (int i = 0; i < steps; ++i) x = fmaf(x, a, b);
  return x;
}
