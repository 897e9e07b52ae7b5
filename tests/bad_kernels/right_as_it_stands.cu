/* The plain kernel, right.

   What every check must pass, so that a check which always fails is noticed too.

   caught-by: nothing
*/
#include "base.cuh"

PROFKIT_VARIANT(Right)
