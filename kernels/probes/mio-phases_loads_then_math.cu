/* All warps read shared memory at once, then all compute at once.

   One warp per scheduler, lined up by barriers: 24 shared loads of 16 bytes back to back, then 384
   multiply-adds. The shared pipe takes one such load every 4 cycles from the four schedulers
   together, so each of them gets one every 16: their queues fill and the warps wait for room, while
   the FP32 pipe idles; then the other way round. Each unit is about half busy on average: the
   phases are the cause, no roof is.

   bound: latency     limiter: mio_throttle  cause: mio-throttle
   twin: yes          output: same
   relieves: each load stands beside the arithmetic of an earlier one; the barriers stay
*/
#include "../common/probe.cuh"

constexpr int kBurst = 24, kAhead = 4;

__device__ __forceinline__ void math(float (&x)[4], float a, float4 v) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    x[0] = fmaf(x[0], a, v.x);
    x[1] = fmaf(x[1], a, v.y);
    x[2] = fmaf(x[2], a, v.z);
    x[3] = fmaf(x[3], a, v.w);
  }
}

__global__ void __launch_bounds__(128) mio_phases(const float4* in, float* out, float a) {
  __shared__ float4 table[8 * 128];
  __shared__ float factor;
  for (int i = threadIdx.x; i < 8 * 128; i += 128) table[i] = in[i];
  factor = a;
  __syncthreads();
  const unsigned mine = shared_address(table + threadIdx.x), common = shared_address(&factor);
  float x[4] = {};
#pragma unroll 1
  for (int round = 0; round < 480; ++round) {
    float4 v[kBurst];
#pragma unroll
    for (int k = 0; k < kBurst; ++k) {
      v[k] = load_shared4_again(mine + 16 * 128 * (k % 8));
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
  return start(args, mio_phases, sm_count(), 128, 0, static_cast<const float4*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.5f);
}
