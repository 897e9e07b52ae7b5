// Emulated: kernels/common/capture.cuh. Nothing is captured, and nothing overlaps.
#pragma once
#include "emulator.h"

struct OwnLast {
  static bool is_ahead(cudaStream_t) { return false; }
  static void remember(cudaStream_t) {}
};
