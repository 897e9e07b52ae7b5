/* Add doubles to consecutive words of 16 MiB of global memory.

   Coalesced and without contention, like the additions of floats that are as fast as stores; but
   the atomic units of the L2 take longer over a sector of doubles, and they are what is full.

   bound: memory      limiter: atomics   cause: atomics-contention
   twin: yes          output: finite
   relieves: the same words are stored to instead of added to
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(512) atomic_double(double* table, float* out, float value) {
  for (unsigned i = thread_slot(); i < 1u << 25; i += thread_count()) {
    double* at = table + (i & ((1u << 21) - 1));
    if (kTwin) *at = value;
    else atomicAdd(at, static_cast<double>(value));
  }
  out[thread_slot()] = value;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, atomic_double, 4 * sm_count(), 512, 0, static_cast<double*>(args->out[1]),
               static_cast<float*>(args->out[0]), args->scale);
}
