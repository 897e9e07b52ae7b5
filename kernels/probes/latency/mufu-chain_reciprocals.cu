/* Chains of reciprocal square roots.

   Each result feeds the next: some twenty cycles a step, with one warp per scheduler. The
   special-function unit itself is busy a third of the time; the warps wait for what it returns.

   bound: latency     limiter: short_scoreboard  cause: short-scoreboard
   twin: yes          output: close
   relieves: four independent chains per thread, a quarter of the steps each
*/
#include "../probe.cuh"

constexpr int kChains = kTwin ? 4 : 1;

__device__ __forceinline__ float rsqrt_unit(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__global__ void __launch_bounds__(128) mufu_chain(const float* in, float* out, int steps) {
  float x[kChains];
#pragma unroll
  for (int k = 0; k < kChains; ++k) x[k] = in[thread_slot()];
  for (int i = 0; i < steps; i += kChains * 4)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int k = 0; k < kChains; ++k) x[k] = rsqrt_unit(x[k]);
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < kChains; ++k) sum += x[k];
  out[thread_slot()] = sum / kChains;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, mufu_chain, sm_count(), 128, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), 16000);
}
