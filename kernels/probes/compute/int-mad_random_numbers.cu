/* Integer multiply-adds: linear congruential generators.

   IMAD goes through one half of the FMA pipe, at half the rate of FFMA: the scheduler issues every
   other cycle and that half pipe is full.

   bound: compute     limiter: int       cause: int-pipe
   twin: no           output: finite
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(256)
    int_mad(const unsigned* in, float* out, unsigned a, unsigned b) {
  unsigned x[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = in[thread_slot() + k];
#pragma unroll 8
  for (int round = 0; round < 3000; ++round) {
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = x[k] * a + b;
  }
  out[thread_slot()] = static_cast<float>(x[0] ^ x[1] ^ x[2] ^ x[3]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  const unsigned one = static_cast<unsigned>(args->scale);
  return start(args, int_mad, 8 * sm_count(), 256, 0, static_cast<const unsigned*>(args->in[1]),
               static_cast<float*>(args->out[0]), one * 1664525u, one * 1013904223u);
}
