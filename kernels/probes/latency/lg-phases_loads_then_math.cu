/* All warps read the L1 at once, then all compute at once.

   Like shared loads in phases, but through the queue for global memory: four warps per scheduler,
   lined up by barriers, 32 loads each that hit the L1, then 128 multiply-adds each. No level of
   memory and no pipe is more than half busy; the warps that are served first wait at the barrier,
   the others for room in the queue.

   bound: latency     limiter: barrier   cause: barrier-wait
   also: lg-throttle
   twin: yes          output: same
   relieves: each load is issued with the arithmetic of an earlier one; the barriers remain
*/
#include "../probe.cuh"

constexpr int kBurst = 32, kAhead = 8;

// A literal factor: three register operands would hold the warps back, see the dispatch probe.
__device__ __forceinline__ void math(float (&x)[4], float v) {
#pragma unroll
  for (int j = 0; j < 4; ++j) x[j] = fmaf(x[j], 0.5f, v);
}

__global__ void __launch_bounds__(512) lg_phases(const float* in, float* out, float one) {
  __shared__ float common;
  common = one;
  __syncthreads();
  const float* mine = in + threadIdx.x;
  const unsigned ones = shared_address(&common);
  float x[4] = {};
#pragma unroll 1
  for (int round = 0; round < 320; ++round) {
    float v[kBurst];
    forget_memory();
#pragma unroll
    for (int k = 0; k < kBurst; ++k) {
      v[k] = mine[512 * k];
      if (kTwin && k >= kAhead) math(x, v[k - kAhead]);
    }
    __syncthreads();
    // What is loaded behind the barrier keeps the arithmetic behind it too.
    const float now = kTwin ? one : load_shared_again(ones);
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] *= now;
#pragma unroll
    for (int k = kTwin ? kBurst - kAhead : 0; k < kBurst; ++k) math(x, v[k]);
    __syncthreads();
  }
  out[thread_slot()] = (x[0] + x[1]) + (x[2] + x[3]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, lg_phases, sm_count(), 512, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale);
}
