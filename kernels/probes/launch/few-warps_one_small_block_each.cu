/* One block of two warps for each SM.

   Every SM has work, but two warps where 64 fit: each waits for its load with hardly anybody to
   cover for it. Nothing but the launch keeps the other warps away.

   bound: launch      limiter: grid_too_small  cause: grid-too-small
   twin: yes          output: finite
   relieves: 32 times the blocks, each with a thirty-second of the work
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(64) few_warps(const float4* in, float* out) {
  float sum = 0.0f;
#pragma unroll 2
  for (unsigned i = thread_slot(); i < 1u << 22; i += thread_count()) {
    const float4 v = in[i];
    sum += (v.x + v.y) + (v.z + v.w);
  }
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, few_warps, (kTwin ? 32 : 1) * sm_count(), 64, 0,
               static_cast<const float4*>(args->in[0]), static_cast<float*>(args->out[0]));
}
