/* Candidate: parts in fp16, B in slices of 64 keys, V in blocks of 128 rows

   arch: 90a   after: champion
*/
#define HALF_MAIL 1
#define PLAN_B Plan<64, 1, 2, 64, 2, 2, 2>
#define PLAN_V Plan<64, 2, 1, 64, 4, 2, 2>
#include "swap_keys_in_registers.cu"
