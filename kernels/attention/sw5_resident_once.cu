/* Candidate: one block a SM at A, V in 128 rows and two splits

   arch: 90a   after: champion
*/
#define HALF_MAIL 1
#define PLAN_A Plan<64, 1, 2, 64, 3, 2, 1>
#define PLAN_B Plan<64, 1, 2, 64, 2, 2, 2>
#define PLAN_V Plan<64, 2, 2, 64, 2, 2, 1>
#include "swap_keys_in_registers.cu"
