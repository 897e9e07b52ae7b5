/* Device memory for the length of one call, in stream order: nothing waits, nothing is created later.

   One pool per device of this library's own, made at the first call, which never gives memory back to
   the driver: after that an allocation is a few hundred nanoseconds on the host and nothing on the
   device. In a captured stream both ends become nodes of the graph.
*/
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>

inline cudaError_t workspace_pool(cudaMemPool_t* pool) {
  constexpr int DEVICES = 64;
  static std::atomic<cudaMemPool_t> pools[DEVICES];
  int device = 0;
  if (cudaError_t e = cudaGetDevice(&device)) return e;
  if (device >= DEVICES) return cudaErrorNotSupported;
  if ((*pool = pools[device].load())) return cudaSuccess;

  // Making a pool is not stream work, so a capture under way on this thread does not mind it.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  if (cudaError_t e = cudaThreadExchangeStreamCaptureMode(&mode)) return e;
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = device;
  cudaMemPool_t made = nullptr;
  cudaError_t e = cudaMemPoolCreate(&made, &props);
  uint64_t keep = UINT64_MAX;
  if (!e) e = cudaMemPoolSetAttribute(made, cudaMemPoolAttrReleaseThreshold, &keep);
  cudaThreadExchangeStreamCaptureMode(&mode);
  if (e) {
    if (made) cudaMemPoolDestroy(made);
    return e;
  }
  if (!pools[device].compare_exchange_strong(*pool, made)) {
    cudaMemPoolDestroy(made);  // another thread was first; *pool is its pool
    return cudaSuccess;
  }
  *pool = made;
  return cudaSuccess;
}

// `bytes` of device memory for work on `stream` that is submitted while this object lives.
class Workspace {
 public:
  Workspace(size_t bytes, cudaStream_t stream) : stream_(stream) {
    cudaMemPool_t pool;
    if ((error = workspace_pool(&pool))) return;
    error = cudaMallocFromPoolAsync(&data, bytes, pool, stream);
    if (error) data = nullptr;
  }
  ~Workspace() {
    if (data) cudaFreeAsync(data, stream_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  void* data = nullptr;
  cudaError_t error = cudaSuccess;

 private:
  cudaStream_t stream_;
};
