/* Accumulators stored in the order of a scan instead of their slots.

   The two off-diagonal 8x8 quadrants of each 16x16 block change places.

   after: right   caught-by: values
*/
#include "base.cuh"

struct Bug : Right {
  static constexpr bool slot_order = false;
};
PROFKIT_VARIANT(Bug)
