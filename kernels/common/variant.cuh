/* The one C function that a variant exports, and what it is given.

   profkit builds each variant into a shared library, loads it with ctypes and calls
   profkit_launch(). No torch header is included anywhere: building one variant takes seconds.
   The struct is mirrored by profkit/lab/measure/variants/variants.py (Args); a test holds the two together.
*/
#pragma once
#include <cuda_runtime.h>

struct ProfkitArgs {
  const void* in[4];     // device pointers, in the order of the problem's inputs
  void* out[2];          // device pointers, in the order of its outputs
  long long size[6];     // the problem's sizes, in the order of its problem.py
  long long stride[6];   // strides of the first input in elements, same order as size
  float scale;           // softmax scale, or whatever one float the problem needs
  int causal;            // 0 or 1
  cudaStream_t stream;   // the only stream a variant may use
};

// Starts the work on args->stream and returns without waiting for it.
// Returns cudaSuccess, or the error of the failed call; cudaErrorNotSupported for a size,
// dtype or device that this variant does not handle.
extern "C" int profkit_launch(const ProfkitArgs* args);
