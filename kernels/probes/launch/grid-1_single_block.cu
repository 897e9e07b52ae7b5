/* One block sums 16 MiB.

   One SM works, all others have nothing: whatever the counters of that SM say, the launch is the
   cause.

   bound: launch      limiter: grid_too_small  cause: grid-too-small
   twin: yes          output: finite
   relieves: as many blocks as the GPU holds
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(1024) grid_1(const float4* in, float* out) {
  float sum = 0.0f;
  const unsigned step = thread_count();
#pragma unroll 4
  for (unsigned i = thread_slot(); i < 1u << 20; i += step) {
    const float4 v = in[i];
    sum += (v.x + v.y) + (v.z + v.w);
  }
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, grid_1, kTwin ? 2 * sm_count() : 1, 1024, 0,
               static_cast<const float4*>(args->in[0]), static_cast<float*>(args->out[0]));
}
