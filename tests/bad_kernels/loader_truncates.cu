/* A loader that loads N D / threads elements a thread, rounded down.

   192 threads for 2048 elements are 10 each: the last 128, two rows of K and of V, stay what they
   were. Where the division is exact, D = 128 with 4096 elements, nearly everything is right.

   after: right   caught-by: values
*/
#include "base.cuh"

struct Bug : Right {
  static constexpr int warps = 6;
  static constexpr bool whole_tile = false;
};
PROFKIT_VARIANT(Bug)
