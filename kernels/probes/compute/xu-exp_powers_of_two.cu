/* Exponentials: one MUFU.EX2 and one addition per element.

   The special-function unit takes a warp instruction every eight cycles and scheduler. An attention
   kernel's softmax asks it for S*S exponentials; here it gets nothing else.

   bound: compute     limiter: xu        cause: xu-pipe
   declares: declared_exps=756940800
   twin: yes          output: finite
   relieves: a multiply-add replaces each exponential
*/
#include "../probe.cuh"

__device__ __forceinline__ float exp2_unit(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__global__ void __launch_bounds__(256) xu_exp(const float* in, float* out, float step) {
  float x[4], sum[4] = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = -in[thread_slot() + k];
#pragma unroll 4
  for (int round = 0; round < 700; ++round) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      sum[k] += kTwin ? fmaf(x[k], x[k], 1.0f) : exp2_unit(x[k]);
      x[k] -= step;
    }
  }
  out[thread_slot()] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, xu_exp, 8 * sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.01f);
}
