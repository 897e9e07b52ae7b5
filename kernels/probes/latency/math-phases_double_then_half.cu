/* All warps compute in double precision at once, then all in half precision at once.

   Four warps per scheduler, lined up by barriers. Each pipe takes an instruction every other cycle,
   so in each phase four ready warps queue for one pipe while the other idles, and both are about
   half busy on average.

   bound: latency     limiter: math_pipe_throttle  cause: math-throttle
   twin: yes          output: same
   relieves: the two kinds of arithmetic alternate, instruction by instruction; the barriers stay
*/
#include <cuda_fp16.h>

#include "../probe.cuh"

constexpr int kChains = 4, kSteps = 32;

__global__ void __launch_bounds__(512)
    math_phases(const float* in, const __half2* halves, float* out, float a, float b) {
  __shared__ float factor, room[512];
  factor = a;
  __syncthreads();
  const unsigned common = shared_address(&factor);
  double x[kChains];
  __half2 h[kChains];
#pragma unroll
  for (int k = 0; k < kChains; ++k) x[k] = in[thread_slot() + k], h[k] = halves[thread_slot() + k];
  double c = a, d = b;
  __half2 e = __float2half2_rn(a), f = __float2half2_rn(b);
#pragma unroll 1
  for (int round = 0; round < 320; ++round) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i)
#pragma unroll
      for (int k = 0; k < kChains; ++k) {
        x[k] = fma(x[k], c, d);
        if (kTwin) h[k] = __hfma2(h[k], e, f);
      }
    if (kTwin) {
      __syncthreads();
      __syncthreads();
    } else {
      // What is stored before a barrier keeps the arithmetic before it, what is loaded behind it
      // keeps the arithmetic behind.
      room[threadIdx.x] = static_cast<float>((x[0] + x[1]) + (x[2] + x[3]));
      __syncthreads();
      e = __float2half2_rn(load_shared_again(common));
#pragma unroll
      for (int i = 0; i < kSteps; ++i)
#pragma unroll
        for (int k = 0; k < kChains; ++k) h[k] = __hfma2(h[k], e, f);
      room[threadIdx.x] = __low2float(__hadd2(__hadd2(h[0], h[1]), __hadd2(h[2], h[3])));
      __syncthreads();
      c = load_shared_again(common);
    }
  }
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < kChains; ++k)
    sum += static_cast<float>(x[k]) + __low2float(h[k]) + __high2float(h[k]);
  out[thread_slot()] = kTwin ? sum : sum + 0.0f * room[threadIdx.x];
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, math_phases, sm_count(), 512, 0, static_cast<const float*>(args->in[0]),
               static_cast<const __half2*>(args->in[3]), static_cast<float*>(args->out[0]),
               args->scale * 0.9f, args->scale * 0.01f);
}
