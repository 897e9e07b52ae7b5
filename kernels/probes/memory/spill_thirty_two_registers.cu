/* 72 live values in 32 registers.

   A register limit (to buy occupancy that is not needed) makes the compiler keep most accumulators
   in local memory: nearly every multiply-add brings a load and a store of its own. The L1 writes
   through, so the stores fill the L2 while the FP32 pipe waits.

   bound: memory      limiter: l2        cause: register-spills
   twin: yes          output: same
   relieves: the limit is lifted
*/
#include "../probe.cuh"

constexpr int kLive = 72;

__global__ void __maxnreg__(kTwin ? 128 : 32)
spill(const float* in, float* out, float a, int rounds) {
  float x[kLive];
#pragma unroll
  for (int k = 0; k < kLive; ++k) x[k] = in[thread_slot() + k];
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int k = 0; k < kLive; ++k) x[k] = fmaf(x[k], a, x[(k + 1) % kLive]);
  }
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < kLive; ++k) sum += x[k];
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, spill, 2 * sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.01f, 100);
}
