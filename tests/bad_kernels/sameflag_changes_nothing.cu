/* A flag that no line of the source looks at.

   after: right   flags: -DUSE_SMEM_SWIZZLE_XOR=1   caught-by: sass
*/
#include "base.cuh"

PROFKIT_VARIANT(Right)
