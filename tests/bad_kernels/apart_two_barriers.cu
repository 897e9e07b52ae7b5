/* Warps without a row wait at another barrier than the rest of their block.

   The hardware counts the warps that wait, wherever they do, so nothing hangs and values are right.
   CUDA promises neither: all threads of a block have to meet at the same __syncthreads(). (Warps that
   leave before a barrier are no fault: those that have ended are not waited for, and synccheck agrees.)

   after: right   caught-by: synccheck
*/
#include "base.cuh"

struct Bug : Right {
  static constexpr bool together = false;
};
PROFKIT_VARIANT(Bug)
