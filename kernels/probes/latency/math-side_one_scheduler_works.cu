/* All the arithmetic lands on one of the four schedulers of each SM.

   Of 32 warps only every fourth works, and these share a scheduler: eight warps with four
   independent chains each queue for its double-precision pipe, which takes an instruction every
   other cycle, while the same pipes of the other three schedulers have nothing. On average that
   pipe is a quarter busy.

   bound: latency     limiter: math_pipe_throttle  cause: math-throttle
   twin: yes          output: same
   relieves: each warp does its own quarter, on its own scheduler
*/
#include "../probe.cuh"

constexpr int kChains = 4;

__device__ __forceinline__ float polynomials(const float* in, double a, double b) {
  double x[kChains];
#pragma unroll
  for (int k = 0; k < kChains; ++k) x[k] = in[k];
#pragma unroll 8
  for (int i = 0; i < 480; ++i)
#pragma unroll
    for (int k = 0; k < kChains; ++k) x[k] = fma(x[k], a, b);
  return static_cast<float>((x[0] + x[1]) + (x[2] + x[3]));
}

__global__ void __launch_bounds__(1024)
    math_side(const float* in, float* out, float a, float b) {
  const unsigned warp = threadIdx.x / 32, slot = thread_slot();
  if (kTwin) {
    out[slot] = polynomials(in + slot, a, b);
  } else if (warp % 4 == 0) {
#pragma unroll 1
    for (int quarter = 0; quarter < 4; ++quarter)
      out[slot + 32 * quarter] = polynomials(in + slot + 32 * quarter, a, b);
  }
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, math_side, sm_count(), 1024, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.9f, args->scale * 0.01f);
}
