/* The last row is not written.

   On memory that happens to hold the result of a run before, nothing shows.

   after: right   caught-by: unwritten
*/
#include "base.cuh"

struct Bug : Right {
  static constexpr bool last_row = false;
};
PROFKIT_VARIANT(Bug)
