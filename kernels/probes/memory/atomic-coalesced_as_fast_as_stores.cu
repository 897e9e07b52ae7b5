/* Add to consecutive words of 16 MiB of global memory.

   Every warp adds to 128 consecutive bytes, no two threads of a moment to one word: nothing
   contends. The atomic units of the L2 take a whole sector of additions per cycle, and what is full
   is the way from the SMs to the L2, as it is for plain stores. The trap: all the traffic is
   atomics, and atomics are not what limits it.

   bound: memory      limiter: l2        cause: l2-bandwidth
   twin: yes          output: finite
   relieves: the same words are stored to instead of added to, which changes little
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(512) atomic_coalesced(float* table, float* out, float value) {
  for (unsigned i = thread_slot(); i < 1u << 27; i += thread_count()) {
    float* at = table + (i & ((1u << 22) - 1));
    if (kTwin) *at = value;
    else atomicAdd(at, value);
  }
  out[thread_slot()] = value;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, atomic_coalesced, 4 * sm_count(), 512, 0, static_cast<float*>(args->out[1]),
               static_cast<float*>(args->out[0]), args->scale);
}
