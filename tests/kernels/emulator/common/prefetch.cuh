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
