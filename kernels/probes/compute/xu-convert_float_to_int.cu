/* Quantise: convert floats to integers.

   F2I runs on the special-function unit, at an eighth of the FP32 rate, though nothing in the
   source looks like a transcendental function.

   bound: compute     limiter: xu        cause: xu-pipe
   twin: yes          output: same
   relieves: adding 1.5 * 2^23 leaves the rounded integer in the low bits: one FP32 addition
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(256) xu_convert(const float* in, float* out, float step) {
  float x[4];
  int sum[4] = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = in[thread_slot() + k];
#pragma unroll 4
  for (int round = 0; round < 700; ++round) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      sum[k] += kTwin ? __float_as_int(x[k] + 12582912.0f) - 0x4B400000 : __float2int_rn(x[k]);
      x[k] += step;
    }
  }
  out[thread_slot()] = static_cast<float>((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, xu_convert, 8 * sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 3.0f);
}
