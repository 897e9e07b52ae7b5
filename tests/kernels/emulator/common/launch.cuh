// Emulated: kernels/common/launch.cuh.
#pragma once
#include "emulator.h"

template <class T>
T& shared_memory() {
  if (!emu::aligned(emu::shared(), alignof(T))) emu::fail("shared memory is not aligned");
  return *static_cast<T*>(emu::shared());
}

template <cudaDeviceAttr ATTRIBUTE>
inline cudaError_t device_attribute(int* value) {
  switch (ATTRIBUTE) {
    case cudaDevAttrMultiProcessorCount:
      *value = std::getenv("EMU_SMS") ? std::atoi(std::getenv("EMU_SMS")) : 3;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 * 1024; return cudaSuccess;
    default: return cudaErrorNotSupported;
  }
}

template <auto KERNEL>
inline cudaError_t resident_blocks(unsigned, size_t, int* blocks) {
  *blocks = 3;
  return cudaSuccess;
}

struct Shape {
  dim3 grid;
  unsigned threads;
  size_t bytes;
  unsigned cluster = 1;
  bool overlap = false;
};

template <auto KERNEL, class... Args>
inline cudaError_t launch(const Shape& shape, cudaStream_t, const Args&... args) {
  if (shape.bytes > 227 * 1024) return cudaErrorNotSupported;
  auto body = [&] { KERNEL(args...); };
  emu::run(shape.grid, shape.threads, shape.bytes, shape.cluster,
           [](void* p) { (*static_cast<decltype(body)*>(p))(); }, &body);
  return cudaSuccess;
}
