/* Blocks of one warp that end with a scattered store.

   A block's place is free again only when its last store is out: 32 sectors, a trip to the L2 each.
   The blocks do nothing else, so nearly all of their life is that wait, while L2 and DRAM are a
   quarter busy. What makes it long is the scatter.

   bound: latency     limiter: drain     cause: uncoalesced-access
   also: store-drain
   twin: yes          output: finite
   relieves: the lanes store side by side
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(32) drain(float* out, float value) {
  const unsigned scattered = blockIdx.x * 0x9E3779B1u + threadIdx.x * 0x01000193u;
  out[kTwin ? thread_slot() : scattered & (kBufferWords - 1)] = value;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, drain, 1024 * sm_count(), 32, 0, static_cast<float*>(args->out[0]),
               args->scale);
}
