/* The launcher waits until the work is done.

   after: right   caught-by: waits
*/
#include "base.cuh"

extern "C" int profkit_launch(const ProfkitArgs* a) {
  if (int e = start<Right>(a, a->stream)) return e;
  return cudaStreamSynchronize(a->stream);
}
