/* The output is read before it is written.

   Times zero: right on clean memory, NaN on whatever else.

   after: right   caught-by: initcheck
*/
#include "base.cuh"

struct Bug : Right {
  static constexpr bool clean_start = false;
};
PROFKIT_VARIANT(Bug)
