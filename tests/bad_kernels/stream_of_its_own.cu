/* Work on a stream of its own.

   Right whenever somebody waits for the whole device, as tests do.

   after: right   caught-by: stream
*/
#include "base.cuh"

extern "C" int profkit_launch(const ProfkitArgs* a) {
  static cudaStream_t own = nullptr;
  if (!own)
    if (int e = cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking)) return e;
  return start<Right>(a, own);
}
