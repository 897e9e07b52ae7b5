/* Tensor maps: what TMA has to know about a (heads, length, D) tensor, made once and remembered. */
#pragma once
#include <cstring>
#include <cuda.h>

#include "attention.cuh"

// cuTensorMapEncodeTiled without linking libcuda: the runtime knows where it is.
inline cudaError_t encode_tensor_map(CUtensorMap* map, const half* tensor, int head_dim, int length,
                                     int heads, int box_rows) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                              const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                              const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                         cudaEnableDefault, &found) ||
        found != cudaDriverEntryPointSuccess)
      function = nullptr;
    return reinterpret_cast<Encode>(function);
  }();
  if (!encode) return cudaErrorNotSupported;
  const auto d = static_cast<cuuint64_t>(head_dim), s = static_cast<cuuint64_t>(length);
  const cuuint64_t sizes[3] = {d, s, static_cast<cuuint64_t>(heads)};
  const cuuint64_t strides[2] = {d * sizeof(half), s * d * sizeof(half)};
  const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(box_rows), 1}, steps[3] = {1, 1, 1};
  CUresult e = encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<half*>(tensor), sizes,
                      strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return e == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// The tensor map for boxes of box_rows rows; encoded once per address, shape and box (a thread
// remembers its last 64), since encoding costs the host as much as a launch.
inline cudaError_t tensor_map(CUtensorMap* map, const half* tensor, int head_dim, const Attention& a,
                              int box_rows) {
  struct Key {
    const half* tensor;
    int head_dim, length, heads, box_rows;
  } key = {tensor, head_dim, a.length, a.heads, box_rows};
  struct Entry {
    Key key;
    CUtensorMap map;
  };
  static thread_local Entry entries[64];
  static thread_local int filled = 0, next = 0;
  for (int i = 0; i < filled; ++i)
    if (!std::memcmp(&entries[i].key, &key, sizeof key)) {
      *map = entries[i].map;
      return cudaSuccess;
    }
  if (cudaError_t e = encode_tensor_map(map, tensor, head_dim, a.length, a.heads, box_rows)) return e;
  entries[next] = {key, *map};
  next = (next + 1) % 64;
  if (filled < 64) ++filled;
  return cudaSuccess;
}
