/* Bytes on their way to L2 before anybody asks for them (sm_90). Nothing is read: no order is needed. */
#pragma once
#include <cstddef>
#include <cuda_fp16.h>

// Rows first to first + rows of a matrix, those before `end` only; one thread is enough.
template <int D>
__device__ __forceinline__ void prefetch_rows(const half* matrix, int first, int rows, int end) {
  static_assert(D * sizeof(half) % 16 == 0, "bulk copies move 16 bytes");
  const int there = min(rows, end - first);
  if (there <= 0) return;
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                   matrix + static_cast<size_t>(first) * D),
               "r"(there * D * static_cast<int>(sizeof(half)))
               : "memory");
}
