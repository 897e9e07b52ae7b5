/* Half-precision multiply-adds, two to an instruction.

   HFMA2 on independent chains from 64 warps per SM; no memory, no conversion.

   bound: compute     limiter: fp16      cause: fp16-pipe
   twin: no           output: finite
*/
#include <cuda_fp16.h>

#include "../probe.cuh"

__global__ void __launch_bounds__(256) fp16(const __half2* in, float* out, float a, float b) {
  __half2 x[4];
  const __half2 c = __float2half2_rn(a), d = __float2half2_rn(b);
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = in[thread_slot() + k];
#pragma unroll 8
  for (int round = 0; round < 6000; ++round) {
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = __hfma2(x[k], c, d);
  }
  const __half2 all = __hadd2(__hadd2(x[0], x[1]), __hadd2(x[2], x[3]));
  out[thread_slot()] = __low2float(all) + __high2float(all);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, fp16, 8 * sm_count(), 256, 0, static_cast<const __half2*>(args->in[3]),
               static_cast<float*>(args->out[0]), args->scale * 0.9f, args->scale * 0.01f);
}
