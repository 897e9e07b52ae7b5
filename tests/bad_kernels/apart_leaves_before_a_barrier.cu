/* Warps without a row leave before the last barrier.

   The hardware counts those that have left, so nothing hangs and values are right: until somebody
   lets them do something behind it.

   after: right   caught-by: synccheck
*/
#include "base.cuh"

struct Bug : Right {
  static constexpr bool together = false;
};
PROFKIT_VARIANT(Bug)
