/* Keys behind the end are read.

   What is read is never used (masked scores do not look at it), so values are right; the last head
   reads outside its allocation. With v it would show in the values too: 0 times NaN is NaN.

   after: right   caught-by: memcheck
*/
#include "base.cuh"

struct Bug : Right {
  static constexpr bool masked_load = false;
};
PROFKIT_VARIANT(Bug)
