/* Candidate: A in four splits without a cluster, B with more registers, V in blocks of 128 rows

   arch: 90a   after: champion
*/
#define PLAN_A Plan<64, 1, 4, 64, 1, 1, 1>
#define PLAN_B Plan<64, 1, 2, 128, 1, 2, 1>
#define PLAN_V Plan<64, 2, 1, 128, 2, 2, 2>
#include "swap_keys_in_registers.cu"
