/* A fence after every store.

   __threadfence() holds the warp until its stores can be seen by the whole GPU, a trip to the L2
   and back each time. Stores are few: no bandwidth is used. They go round in 4 MiB, which the L2
   holds: DRAM sees none of them.

   bound: latency     limiter: membar    cause: membar
   also: cache-resident
   twin: yes          output: same
   relieves: one fence after the last store
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(512) membar(float* out, float value) {
  for (int i = 0; i < 128; ++i) {
    out[thread_slot() + (i & 7) * thread_count()] = value + i;
    if (kTwin) asm volatile("" ::: "memory");  // each store is done, as before a fence
    else __threadfence();
  }
  __threadfence();
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, membar, 2 * sm_count(), 512, 0, static_cast<float*>(args->out[0]),
               args->scale);
}
