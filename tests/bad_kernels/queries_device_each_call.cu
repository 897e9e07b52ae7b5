/* The launcher asks for the device's properties at every call.

   What is timed from outside is the question, not the kernel.

   after: right   caught-by: host-bound
*/
#include "base.cuh"

extern "C" int profkit_launch(const ProfkitArgs* a) {
  cudaDeviceProp properties;
  for (int i = 0; i < 4; ++i)
    if (int e = cudaGetDeviceProperties(&properties, 0)) return e;
  if (properties.warpSize != 32) return cudaErrorNotSupported;
  return start<Right>(a, a->stream);
}
