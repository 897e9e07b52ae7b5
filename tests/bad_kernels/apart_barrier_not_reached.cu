/* One thread leaves out a barrier.

   The block goes on with whoever arrives next.

   after: right   caught-by: synccheck
*/
#include "base.cuh"

struct Bug : Right {
  static constexpr bool together = false;
};
PROFKIT_VARIANT(Bug)
