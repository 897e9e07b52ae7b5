/* 16 blocks stream from DRAM.

   An eighth of the SMs work, each as fast as one SM can pull data, which is well above its share:
   DRAM reads a middling figure that looks like a latency problem and is a launch of 16 blocks.

   bound: launch      limiter: grid_too_small  cause: grid-too-small
   twin: yes          output: finite
   relieves: two blocks for each SM
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(1024) grid_16(const float4* in, float* out) {
  float sum = 0.0f;
  const unsigned step = thread_count(), all = 1u << 25;
  for (unsigned i = thread_slot(); i < all; i += 4 * step) {
    float4 v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = i + k * step < all ? in[i + k * step] : float4{};
#pragma unroll
    for (int k = 0; k < 4; ++k) sum += (v[k].x + v[k].y) + (v[k].z + v[k].w);
  }
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, grid_16, kTwin ? 2 * sm_count() : 16, 1024, 0,
               static_cast<const float4*>(args->in[0]), static_cast<float*>(args->out[0]));
}
