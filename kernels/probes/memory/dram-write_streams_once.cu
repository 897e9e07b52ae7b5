/* Write one gibibyte once.

   One 16-byte store per thread and step, coalesced, with the value made in registers: nothing is
   read and nothing computed, so the DRAM interface carries writes only.

   bound: memory      limiter: dram      cause: dram-bandwidth
   twin: yes          output: finite
   relieves: the same stores go round in 16 MiB, which the L2 holds and rewrites
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(512) dram_write(float4* out, float value, unsigned mask) {
  const float4 v = {value, value, value, value};
  for (unsigned i = thread_slot(); i < kBufferWords / 4; i += thread_count()) out[i & mask] = v;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, dram_write, 4 * sm_count(), 512, 0, static_cast<float4*>(args->out[0]),
               args->scale, kTwin ? (1u << 20) - 1 : ~0u);
}
