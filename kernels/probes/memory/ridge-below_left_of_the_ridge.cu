/* Half as many multiply-adds per word as the roofline's ridge.

   Twelve multiply-adds on each word read once: the FP32 pipe is about half busy, DRAM is full.

   bound: memory      limiter: dram      cause: dram-bandwidth
   twin: no           output: finite
*/
#include "../probe.cuh"

constexpr int kSteps = 12;

__global__ void __launch_bounds__(512) ridge_below(const float4* in, float* out, float a, float b) {
  float4 sum = {};
#pragma unroll 2
  for (unsigned i = thread_slot(); i < kBufferWords / 4; i += thread_count()) {
    float4 v = in[i];
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      v.x = fmaf(v.x, a, b), v.y = fmaf(v.y, a, b);
      v.z = fmaf(v.z, a, b), v.w = fmaf(v.w, a, b);
    }
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  out[thread_slot()] = (sum.x + sum.y) + (sum.z + sum.w);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, ridge_below, 4 * sm_count(), 512, 0, static_cast<const float4*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.999f, args->scale * 0.01f);
}
