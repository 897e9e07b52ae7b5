/* Multiply and add in two instructions each.

   The FP32 pipe is full, with twice the instructions that the arithmetic needs: the separate
   rounding forbids the compiler to fuse them (as -fmad=false does).

   bound: compute     limiter: fp32      cause: non-fused-math
   twin: yes          output: close
   relieves: one fused multiply-add for each pair
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(256) unfused(const float* in, float* out, float a, float b) {
  float x[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = in[thread_slot() + k];
#pragma unroll 8
  for (int round = 0; round < 3000; ++round) {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      x[k] = kTwin ? fmaf(x[k], a, b) : __fadd_rn(__fmul_rn(x[k], a), b);
  }
  out[thread_slot()] = (x[0] + x[1]) + (x[2] + x[3]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, unfused, 8 * sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.999f, args->scale * 0.01f);
}
