/* No barrier between filling a tile and using it.

   Warps that are late see the tile before. Values are often right all the same, which is why it is dangerous.

   after: right   caught-by: racecheck
*/
#include "base.cuh"

struct Bug : Right {
  static constexpr bool barrier = false;
};
PROFKIT_VARIANT(Bug)
