/* What measuring needs on the device: NVTX ranges, a stream kept busy, a cold L2, a tight loop.

   Built like a variant, once per architecture. Nothing here runs inside a profiled window.
*/
#include <chrono>
#include <cuda_runtime.h>
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define PROFKIT_NVTX 1
#else
#define PROFKIT_NVTX 0
#endif

// Marks what follows for the profiler; 0 if the toolkit has no NVTX.
extern "C" int profkit_range_push(const char* name) {
#if PROFKIT_NVTX
  nvtxRangePushA(name);
#else
  (void)name;
#endif
  return PROFKIT_NVTX;
}
extern "C" void profkit_range_pop() {
#if PROFKIT_NVTX
  nvtxRangePop();
#endif
}

__global__ void profkit_spin_kernel(long long nanoseconds) {
  long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}
// Keeps the stream busy for a while.
extern "C" int profkit_spin(long long nanoseconds, cudaStream_t stream) {
  profkit_spin_kernel<<<1, 1, 0, stream>>>(nanoseconds);
  return cudaGetLastError();
}

// Reads a buffer larger than L2. Reading leaves no dirty lines behind, whose write-back would
// otherwise fall into the launch that follows; the sum keeps the loads from being dropped.
__global__ void profkit_flush_kernel(const float4* buffer, size_t n, float* never) {
  float sum = 0.f;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n;
       i += size_t(gridDim.x) * blockDim.x) {
    float4 x = buffer[i];
    sum += x.x + x.y + x.z + x.w;
  }
  if (sum == 12345.f) *never = sum;
}
extern "C" int profkit_flush(void* buffer, size_t bytes, int blocks, cudaStream_t stream) {
  profkit_flush_kernel<<<blocks, 512, 0, stream>>>(static_cast<const float4*>(buffer),
                                                   bytes / sizeof(float4),
                                                   static_cast<float*>(buffer));
  return cudaGetLastError();
}

// Lets the next kernel begin at once, if that one was launched to (programmatic dependent launch),
// and copies late. A few small blocks: the next kernel needs room beside it.
__global__ void profkit_put_kernel(unsigned char* to, const unsigned char* from, size_t bytes,
                                   long long nanoseconds) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < bytes;
       i += size_t(gridDim.x) * blockDim.x)
    to[i] = from[i];
}
extern "C" int profkit_put(void* to, const void* from, size_t bytes, long long nanoseconds,
                           cudaStream_t stream) {
  profkit_put_kernel<<<8, 256, 0, stream>>>(static_cast<unsigned char*>(to),
                                            static_cast<const unsigned char*>(from), bytes,
                                            nanoseconds);
  return cudaGetLastError();
}

__global__ void profkit_empty_kernel() {}
// Starts an empty kernel n times in a row and returns the host time of all starts in nanoseconds: what
// the smallest launcher there is costs here.
extern "C" long long profkit_bare(int n, cudaStream_t stream, int* error) {
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < n; ++i) profkit_empty_kernel<<<1, 1, 0, stream>>>();
  auto took = std::chrono::steady_clock::now() - start;
  *error = cudaGetLastError();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
}

// Calls a launcher n times in a row and returns the host time of all calls in nanoseconds; -1 and
// the code in *error if one failed.
extern "C" long long profkit_repeat(int (*launch)(const void*), const void* args, int n,
                                    int* error) {
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < n; ++i) {
    *error = launch(args);
    if (*error) return -1;
  }
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                              start)
      .count();
}
