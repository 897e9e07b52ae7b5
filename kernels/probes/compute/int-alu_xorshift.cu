/* Shifts and exclusive-ors: xorshift generators.

   SHF and LOP3 run on the ALU pipe at one warp instruction every other cycle and scheduler; there
   is nothing else to issue.

   bound: compute     limiter: int       cause: int-pipe
   twin: no           output: finite
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(256) int_alu(const unsigned* in, float* out) {
  unsigned x[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = in[thread_slot() + k] | 1u;
#pragma unroll 4
  for (int round = 0; round < 500; ++round) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      x[k] ^= x[k] << 13;
      x[k] ^= x[k] >> 17;
      x[k] ^= x[k] << 5;
    }
  }
  out[thread_slot()] = static_cast<float>(x[0] ^ x[1] ^ x[2] ^ x[3]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, int_alu, 8 * sm_count(), 256, 0, static_cast<const unsigned*>(args->in[1]),
               static_cast<float*>(args->out[0]));
}
