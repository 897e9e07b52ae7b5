/* The halves of a warp reach different barriers.

   bar.sync is for whole warps: what happens otherwise is not defined, and often nothing does.

   after: right   caught-by: synccheck
*/
#include "base.cuh"

struct Bug : Right {
  static constexpr bool together = false;
};
PROFKIT_VARIANT(Bug)
