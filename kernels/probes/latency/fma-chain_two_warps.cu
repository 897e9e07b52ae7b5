/* One chain of dependent multiply-adds per thread.

   A multiply-add's result is there after four cycles; with two warps per scheduler half of the
   cycles have nothing to issue. Nothing else happens: the wait is the fixed latency of the pipe.

   bound: latency     limiter: wait      cause: fixed-latency
   twin: yes          output: close
   relieves: four partial sums per thread make the additions independent
*/
#include "../probe.cuh"

constexpr int kSums = kTwin ? 4 : 1;

__global__ void __launch_bounds__(256) fma_wait(const float* in, float* out, float w) {
  float x[8], sum[kSums] = {};
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = in[thread_slot() + k];
#pragma unroll 4
  for (int i = 0; i < 12000; ++i) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      sum[k % kSums] = fmaf(x[k], w, sum[k % kSums]);
    }
  }
  float all = 0.0f;
#pragma unroll
  for (int k = 0; k < kSums; ++k) all += sum[k];
  out[thread_slot()] = all;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, fma_wait, sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.01f);
}
