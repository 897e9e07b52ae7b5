/* Each warp computes in double precision for a while, then in half precision.

   One warp per scheduler and eight independent chains: the double-precision and the half-precision
   pipe each take an instruction every other cycle. The compiler knows and writes the pause into the
   instructions as a fixed wait. In each phase the other pipe idles: both are half busy on average.

   bound: latency     limiter: wait      cause: fixed-latency
   twin: yes          output: same
   relieves: the two kinds of arithmetic alternate, instruction by instruction
*/
#include <cuda_fp16.h>

#include "../probe.cuh"

constexpr int kChains = 8, kSteps = 32;

__global__ void __launch_bounds__(128)
    math_burst(const float* in, const __half2* halves, float* out, float a, float b) {
  double x[kChains];
  __half2 h[kChains];
#pragma unroll
  for (int k = 0; k < kChains; ++k) x[k] = in[thread_slot() + k], h[k] = halves[thread_slot() + k];
  const double c = a, d = b;
  const __half2 e = __float2half2_rn(a), f = __float2half2_rn(b);
#pragma unroll 1
  for (int round = 0; round < 360; ++round) {
#pragma unroll 8
    for (int i = 0; i < kSteps; ++i)
#pragma unroll
      for (int k = 0; k < kChains; ++k) {
        x[k] = fma(x[k], c, d);
        if (kTwin) h[k] = __hfma2(h[k], e, f);
      }
#pragma unroll 8
    for (int i = 0; i < kSteps && !kTwin; ++i)  // a loop of its own: the phases stay apart
#pragma unroll
      for (int k = 0; k < kChains; ++k) h[k] = __hfma2(h[k], e, f);
  }
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < kChains; ++k)
    sum += static_cast<float>(x[k]) + __low2float(h[k]) + __high2float(h[k]);
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, math_burst, sm_count(), 128, 0, static_cast<const float*>(args->in[0]),
               static_cast<const __half2*>(args->in[3]), static_cast<float*>(args->out[0]),
               args->scale * 0.9f, args->scale * 0.01f);
}
