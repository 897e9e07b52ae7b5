/* Copy with the source one word off its alignment.

   Each warp's 128 bytes straddle five sectors instead of four, so "sectors per request" is 25 % off
   the ideal; but the fifth sector is the neighbour's first and comes out of the L1. DRAM moves what
   it would move anyway. The trap: misalignment is visible and is not the cause.

   bound: memory      limiter: dram      cause: dram-bandwidth
   twin: no           output: finite
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(512) dram_shifted(const float* in, float* out) {
  const unsigned step = thread_count(), words = kBufferWords / 2;
  for (unsigned i = thread_slot(); i < words; i += 4 * step) {
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = i + k * step < words ? in[i + k * step + 1] : 0.0f;
#pragma unroll
    for (int k = 0; k < 4; ++k) if (i + k * step < words) out[i + k * step] = v[k];
  }
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, dram_shifted, 4 * sm_count(), 512, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]));
}
