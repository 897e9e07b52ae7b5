/* Each warp reads the L1 in a burst, then computes.

   Like shared loads in bursts, but through the queue for global memory: 64 loads that hit the L1,
   back to back, a barrier, then 256 multiply-adds, with one warp per scheduler. No level of memory
   and no pipe is much more than half busy; the four cycles from load to load are a fixed wait.

   bound: latency     limiter: wait      cause: fixed-latency
   twin: yes          output: same
   relieves: no barriers, and each load is issued with the arithmetic of an earlier one
*/
#include "../probe.cuh"

constexpr int kBurst = 64, kAhead = 16;

__device__ __forceinline__ void math(float (&x)[4], float a, float v) {
#pragma unroll
  for (int j = 0; j < 4; ++j) x[j] = fmaf(x[j], a, v);
}

__global__ void __launch_bounds__(128) lg_burst(const float* in, float* out, float a) {
  __shared__ float factor;
  factor = a;
  __syncthreads();
  const float* mine = in + threadIdx.x;
  const unsigned common = shared_address(&factor);
  float x[4] = {};
#pragma unroll 1
  for (int round = 0; round < 600; ++round) {
    float v[kBurst];
    forget_memory();
#pragma unroll
    for (int k = 0; k < kBurst; ++k) {
      v[k] = mine[128 * k];
      if (kTwin && k >= kAhead) math(x, a, v[k - kAhead]);
    }
    if (!kTwin) __syncthreads();
    // What is loaded behind the barrier keeps the arithmetic behind it too.
    const float now = kTwin ? a : load_shared_again(common);
#pragma unroll
    for (int k = kTwin ? kBurst - kAhead : 0; k < kBurst; ++k) math(x, now, v[k]);
    if (!kTwin) __syncthreads();
  }
  out[thread_slot()] = (x[0] + x[1]) + (x[2] + x[3]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, lg_burst, sm_count(), 128, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.5f);
}
