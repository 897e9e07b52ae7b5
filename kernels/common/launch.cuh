/* Starting a kernel: errors returned, attributes asked for once, nothing waited for. */
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>

// Dynamic shared memory as a T. All shared memory here is dynamic: its size is then one number,
// known on the host, and 1 KiB alignment is what the widest swizzle and TMA ask for.
template <class T>
__device__ __forceinline__ T& shared_memory() {
  extern __shared__ __align__(1024) unsigned char dynamic_shared_memory[];
  return *reinterpret_cast<T*>(dynamic_shared_memory);
}

// An attribute of the current device, asked for once per device and then remembered.
template <cudaDeviceAttr ATTRIBUTE>
inline cudaError_t device_attribute(int* value) {
  constexpr int DEVICES = 64;
  static std::atomic<int> known[DEVICES];  // value + 1, 0 = not asked yet
  int device = 0;
  if (cudaError_t e = cudaGetDevice(&device)) return e;
  if (device >= DEVICES) return cudaErrorNotSupported;
  if (int seen = known[device].load(std::memory_order_relaxed)) {
    *value = seen - 1;
    return cudaSuccess;
  }
  if (cudaError_t e = cudaDeviceGetAttribute(value, ATTRIBUTE, device)) return e;
  known[device].store(*value + 1, std::memory_order_relaxed);
  return cudaSuccess;
}

// Lets KERNEL have `bytes` of dynamic shared memory, once per device: a block gets more than
// 48 KiB only on request. cudaErrorNotSupported where the device has less than that.
template <auto KERNEL>
inline cudaError_t allow_shared_memory(size_t bytes) {
  static std::atomic<uint64_t> done{0};  // one bit per device
  int device = 0, limit = 0;
  if (cudaError_t e = cudaGetDevice(&device)) return e;
  uint64_t bit = uint64_t{1} << (device & 63);
  if (done.load(std::memory_order_relaxed) & bit) return cudaSuccess;
  if (cudaError_t e = device_attribute<cudaDevAttrMaxSharedMemoryPerBlockOptin>(&limit)) return e;
  if (bytes > static_cast<size_t>(limit)) return cudaErrorNotSupported;
  if (cudaError_t e = cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(bytes)))
    return e;
  done.fetch_or(bit, std::memory_order_relaxed);
  return cudaSuccess;
}

// Blocks of KERNEL that the whole device holds at once, asked for once per device.
template <auto KERNEL>
inline cudaError_t resident_blocks(unsigned threads, size_t bytes, int* blocks) {
  static std::atomic<int> known[64];  // per SM, 0 = not asked yet
  int device = 0, sms = 0, per_sm = 0;
  if (cudaError_t e = cudaGetDevice(&device)) return e;
  if (cudaError_t e = device_attribute<cudaDevAttrMultiProcessorCount>(&sms)) return e;
  if (cudaError_t e = allow_shared_memory<KERNEL>(bytes)) return e;
  per_sm = known[device].load(std::memory_order_relaxed);
  if (per_sm == 0) {
    if (cudaError_t e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &per_sm, KERNEL, static_cast<int>(threads), bytes))
      return e;
    if (per_sm == 0) return cudaErrorNotSupported;
    known[device].store(per_sm, std::memory_order_relaxed);
  }
  *blocks = sms * per_sm;
  return cudaSuccess;
}

struct Shape {
  dim3 grid;
  unsigned threads;
  size_t bytes;          // of dynamic shared memory, the same at every launch of one kernel
  unsigned cluster = 1;  // blocks, along x (sm_90)
  bool overlap = false;  // may start before the kernel before it has ended (sm_90): the kernel
                         // itself waits, with griddepcontrol.wait, before it touches memory
};

// KERNEL<<<grid, threads, bytes, stream>>>(args...)
template <auto KERNEL, class... Args>
inline cudaError_t launch(const Shape& shape, cudaStream_t stream, const Args&... args) {
  if (shape.bytes > 48 * 1024)
    if (cudaError_t e = allow_shared_memory<KERNEL>(shape.bytes)) return e;
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {shape.cluster, 1, 1};
  }
  if (shape.overlap) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, KERNEL, args...);
}
