/* Candidate: A in two splits of 128 keys without a cluster, B and V in four splits

   arch: 90a   after: champion
*/
#define PLAN_A Plan<64, 1, 2, 128, 1, 1, 1>
#define PLAN_B Plan<64, 1, 4, 64, 1, 2, 1>
#define PLAN_V Plan<64, 1, 4, 64, 2, 1, 1>
#include "swap_keys_in_registers.cu"
