/* The launcher asks for the device's properties and its free memory at every call.

   What is timed from outside is the question, not the kernel.

   after: right   caught-by: host-bound
*/
#include "base.cuh"

extern "C" int profkit_launch(const ProfkitArgs* a) {
  cudaDeviceProp properties;
  size_t unused = 0, total = 0;
  if (int e = cudaGetDeviceProperties(&properties, 0)) return e;
  if (int e = cudaMemGetInfo(&unused, &total)) return e;
  if (properties.warpSize != 32 || total == 0) return cudaErrorNotSupported;
  return start<Right>(a, a->stream);
}
