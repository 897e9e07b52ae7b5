/* Rows behind the end are read.

   What is read is never used, so values are right; the last head reads outside its allocation.

   after: right   caught-by: memcheck
*/
#include "base.cuh"

struct Bug : Right {
  static constexpr bool masked_load = false;
};
PROFKIT_VARIANT(Bug)
