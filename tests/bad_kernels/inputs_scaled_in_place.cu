/* The scale is multiplied into q where it lies.

   The first call is right, the second is not.

   after: right   caught-by: inputs
*/
#include "base.cuh"

struct Bug : Right {
  static constexpr bool pure = false;
};
PROFKIT_VARIANT(Bug)
