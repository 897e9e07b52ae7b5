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

// This thread's share of rows first to first + rows, line by line: threads 0 to THREADS name one line
// of 128 bytes each, then the next ones. By the load unit, beside whatever TMA is asked for.
template <int D, int THREADS>
__device__ __forceinline__ void prefetch_lines(const half* matrix, int first, int rows, int end,
                                               int thread) {
  constexpr int LINE = 64;  // halves
  const int lines = max(min(rows, end - first), 0) * (D / LINE);
  for (int i = thread; i < lines; i += THREADS)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(
                     matrix + static_cast<size_t>(first) * D + i * LINE)
                 : "memory");
}

// The first LINES lines of 128 bytes of a kernel's code, each by one block of the grid: code is cold as
// well where everything is, and a warp fetches it line by line as it goes.
template <int LINES>
__device__ __forceinline__ void prefetch_code(const void* kernel, int thread) {
  const int blocks = gridDim.x * gridDim.y, line = blockIdx.y * gridDim.x + blockIdx.x + thread * blocks;
  if (line < LINES)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(kernel) + line * 128)
                 : "memory");
}
