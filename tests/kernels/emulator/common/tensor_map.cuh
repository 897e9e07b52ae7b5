// Emulated: kernels/common/tensor_map.cuh.
#pragma once
#include <cuda.h>

#include "attention.cuh"
#include "emulator.h"

namespace emu {
struct Map {  // lies in the opaque bytes of a CUtensorMap
  const half* tensor;
  int head_dim, length, heads, box_rows;
};
}  // namespace emu

inline cudaError_t tensor_map(CUtensorMap* map, const half* tensor, int head_dim, const Attention& a,
                              int box_rows) {
  emu::Map mine = {tensor, head_dim, a.length, a.heads, box_rows};
  static_assert(sizeof mine <= sizeof *map, "");
  if (box_rows < 1 || box_rows > 256) return cudaErrorInvalidValue;
  std::memcpy(map, &mine, sizeof mine);
  return cudaSuccess;
}
