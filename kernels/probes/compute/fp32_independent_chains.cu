/* FP32 multiply-adds and nothing else.

   Four independent chains per thread and 64 warps per SM: every scheduler has a multiply-add ready
   in every cycle. No memory until the end.

   bound: compute     limiter: fp32      cause: fp32-pipe
   twin: no           output: finite
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(256) fp32(const float* in, float* out, float a, float b) {
  float x[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = in[thread_slot() + k];
#pragma unroll 8
  for (int round = 0; round < 6000; ++round) {
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = fmaf(x[k], a, b);
  }
  out[thread_slot()] = (x[0] + x[1]) + (x[2] + x[3]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, fp32, 8 * sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.999f, args->scale * 0.01f);
}
