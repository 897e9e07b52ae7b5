/* Rows behind the end are written.

   The rows of the next head are hit, and behind the last head whatever lies there.

   after: right   caught-by: guard
*/
#include "base.cuh"

struct Bug : Right {
  static constexpr bool masked_store = false;
};
PROFKIT_VARIANT(Bug)
