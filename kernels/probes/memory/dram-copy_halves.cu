/* Copy half a gibibyte.

   Reads and writes share the DRAM bus and turn it round; nothing else is done. This is the plainest
   memory-bound kernel there is.

   bound: memory      limiter: dram      cause: dram-bandwidth
   declares: declared_bytes=1073741824
   twin: no           output: finite
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(512) dram_copy(const float4* in, float4* out) {
  for (unsigned i = thread_slot(); i < kBufferWords / 8; i += thread_count())
    out[i] = in[i];
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, dram_copy, 4 * sm_count(), 512, 0, static_cast<const float4*>(args->in[0]),
               static_cast<float4*>(args->out[0]));
}
