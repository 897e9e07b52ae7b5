// Emulated: kernels/common/prefetch.cuh. What is fetched ahead has to be there.
#pragma once
#include "emulator.h"

template <int D>
void prefetch_rows(const half* matrix, int first, int rows, int end) {
  const int there = std::min(rows, end - first);
  if (there <= 0) return;
  volatile unsigned short seen = 0;
  const auto* words = reinterpret_cast<const unsigned short*>(matrix);
  for (long i = static_cast<long>(first) * D; i < static_cast<long>(first + there) * D; i += D)
    seen = words[i], (void)seen;
}

template <int D, int THREADS>
void prefetch_lines(const half* matrix, int first, int rows, int end, int thread) {
  const int lines = std::max(std::min(rows, end - first), 0) * (D / 64);
  volatile unsigned short seen = 0;
  const auto* words = reinterpret_cast<const unsigned short*>(matrix);
  for (int i = thread; i < lines; i += THREADS)
    for (int j = 0; j < 64; ++j) seen = words[static_cast<long>(first) * D + i * 64 + j], (void)seen;
}

template <int LINES>
void prefetch_code(const void*, int) {}  // its code is not the kernel's
