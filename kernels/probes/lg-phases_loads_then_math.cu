/* All warps read the L1 at once, then all compute at once.

   Like shared loads in phases, but through the queue for global memory: one warp per scheduler,
   lined up by barriers, 24 loads of 16 bytes that hit the L1, then 384 multiply-adds. No level of
   memory and no pipe is much more than half busy.

   bound: latency     limiter: lg_throttle  cause: lg-throttle
   twin: yes          output: same
   relieves: each load stands beside the arithmetic of an earlier one; the barriers stay
*/
#include "../common/probe.cuh"

constexpr int kBurst = 24, kAhead = 6;

__device__ __forceinline__ void math(float (&x)[4], float a, float4 v) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    x[0] = fmaf(x[0], a, v.x);
    x[1] = fmaf(x[1], a, v.y);
    x[2] = fmaf(x[2], a, v.z);
    x[3] = fmaf(x[3], a, v.w);
  }
}

__global__ void __launch_bounds__(128) lg_phases(const float4* in, float* out, float a) {
  __shared__ float factor;
  factor = a;
  __syncthreads();
  const float4* mine = in + threadIdx.x;
  const unsigned common = shared_address(&factor);
  float x[4] = {};
#pragma unroll 1
  for (int round = 0; round < 480; ++round) {
    float4 v[kBurst];
    forget_memory();
#pragma unroll
    for (int k = 0; k < kBurst; ++k) {
      v[k] = mine[128 * k];
      if (kTwin && k >= kAhead) math(x, a, v[k - kAhead]);
    }
    __syncthreads();
    // What is loaded behind the barrier keeps the arithmetic behind it too.
    const float now = kTwin ? a : load_shared_again(common);
#pragma unroll
    for (int k = kTwin ? kBurst - kAhead : 0; k < kBurst; ++k) math(x, now, v[k]);
    __syncthreads();
  }
  out[thread_slot()] = (x[0] + x[1]) + (x[2] + x[3]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, lg_phases, sm_count(), 128, 0, static_cast<const float4*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.5f);
}
