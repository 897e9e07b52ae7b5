/* Every decoded value of v is half an e4m3 code too large.

   Inputs lie on the e4m3 grid, so a matched encode and decode would be exact. The error has a sign, which noise has not.

   after: right   inputs: e4m3   caught-by: bias
*/
#include "base.cuh"

struct Bug : Right {
  static constexpr bool decoded = false;
};
PROFKIT_VARIANT(Bug)
