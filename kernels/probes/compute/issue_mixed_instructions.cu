/* A mix of instructions that fills the issue slots and no pipe.

   Per element: FP32 multiply-adds, integer logic and additions, a half-precision and a
   double-precision operation and a special function, in proportions that leave each pipe about half
   idle while a scheduler, which issues one instruction per cycle, has no free cycle.

   bound: compute     limiter: issue     cause: issue-slots
   twin: no           output: finite
*/
#include <cuda_fp16.h>

#include "../probe.cuh"

__global__ void __launch_bounds__(256)
    issue_mix(const float* in, const __half2* halves, float* out, float a, float b, unsigned m) {
  float x[4];
  unsigned n[2];
  __half2 h = halves[thread_slot()], c = __float2half2_rn(a);
  float e = in[thread_slot() + 9];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = in[thread_slot() + k];
  n[0] = thread_slot(), n[1] = ~n[0];
#pragma unroll 4
  for (int round = 0; round < 1200; ++round) {
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k % 4] = fmaf(x[k % 4], a, b);       // 8 on FMA
    n[0] = (n[0] ^ m) & (n[1] | 0x55555u), n[1] = (n[1] ^ n[0]) + m;   // 3 on ALU
    n[0] = (n[0] | m) ^ n[1];                                          // 1 on ALU
    h = __hfma2(h, c, c), h = __hfma2(h, c, c);                        // 2 on FP16
    asm volatile("{.reg .f32 t; neg.f32 t, %0; ex2.approx.ftz.f32 %0, t;}" : "+f"(e));  // 1 on XU
  }
  const float all = (x[0] + x[1]) + (x[2] + x[3]) + e;
  out[thread_slot()] = all + __low2float(h) + static_cast<float>(n[0] ^ n[1]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, issue_mix, 8 * sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<const __half2*>(args->in[3]), static_cast<float*>(args->out[0]),
               args->scale * 0.9f, args->scale * 0.01f,
               static_cast<unsigned>(args->scale) * 0x9E3779B9u);
}
