/* Two warps keep one maximum.

   Both read and write it with nothing between. Any maximum will do for the result, so values do not show it.

   after: right   caught-by: racecheck
*/
#include "base.cuh"

struct Bug : Right {
  static constexpr bool own_row = false;
};
PROFKIT_VARIANT(Bug)
