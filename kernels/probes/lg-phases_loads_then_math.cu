/* All warps read the L1 at once, then all compute at once.

   Like shared loads in phases, but through the queue for global memory: four warps per scheduler,
   lined up by barriers, 32 loads each that hit the L1, then 128 multiply-adds each. No level of
   memory and no pipe is much more than half busy.

   bound: latency     limiter: lg_throttle  cause: lg-throttle
   twin: yes          output: same
   relieves: no barriers, and each load stands beside the arithmetic of an earlier one
*/
#include "../common/probe.cuh"

constexpr int kBurst = 32, kAhead = 8;

__device__ __forceinline__ void math(float (&x)[4], float a, float v) {
#pragma unroll
  for (int j = 0; j < 4; ++j) x[j] = fmaf(x[j], a, v);
}

__global__ void __launch_bounds__(512) lg_phases(const float* in, float* out, float a) {
  __shared__ float factor;
  factor = a;
  __syncthreads();
  const float* mine = in + threadIdx.x;
  const unsigned common = shared_address(&factor);
  float x[4] = {};
#pragma unroll 1
  for (int round = 0; round < 320; ++round) {
    float v[kBurst];
    forget_memory();
#pragma unroll
    for (int k = 0; k < kBurst; ++k) {
      v[k] = mine[512 * k];
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
  return start(args, lg_phases, sm_count(), 512, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.5f);
}
