/* One row divides by zero.

   A gate that asks whether error > tolerance lets NaN through.

   after: right   caught-by: nan
*/
#include "base.cuh"

struct Bug : Right {
  static constexpr bool finite = false;
};
PROFKIT_VARIANT(Bug)
