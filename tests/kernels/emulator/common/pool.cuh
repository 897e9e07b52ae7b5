// Emulated: kernels/common/pool.cuh.
#pragma once
#include "emulator.h"

class Workspace {
 public:
  Workspace(size_t bytes, cudaStream_t) {
    if (posix_memalign(&data, 256, bytes)) error = cudaErrorMemoryAllocation;
    if (data) std::memset(data, 0xff, bytes);
  }
  ~Workspace() { std::free(data); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  void* data = nullptr;
  cudaError_t error = cudaSuccess;
};
