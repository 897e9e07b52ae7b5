/* All warps read shared memory at once, then all compute at once.

   Four warps per scheduler, lined up by barriers: 32 shared loads each, back to back, then 128
   multiply-adds each. The shared pipe takes one load per cycle of the SM, so the queues fill while
   the FP32 pipe idles; then the other way round. Each unit is half busy on average. A scheduler
   does not serve its warps in turn: those it prefers are done early and stand at the barrier, a bit
   longer than the others wait for room in the queue. The phases that the barriers make are the
   cause.

   bound: latency     limiter: barrier   cause: barrier-wait
   also: mio-throttle
   twin: yes          output: same
   relieves: each load is issued with the arithmetic of an earlier one; the barriers remain
*/
#include "../probe.cuh"

constexpr int kBurst = 32, kAhead = 4;

// A literal factor: three register operands would hold the warps back, see the dispatch probe.
__device__ __forceinline__ void math(float (&x)[4], float v) {
#pragma unroll
  for (int j = 0; j < 4; ++j) x[j] = fmaf(x[j], 0.5f, v);
}

__global__ void __launch_bounds__(512) mio_phases(const float* in, float* out, float one) {
  __shared__ float table[16 * 512], common;
  for (int i = threadIdx.x; i < 16 * 512; i += 512) table[i] = in[i];
  common = one;
  __syncthreads();
  const unsigned mine = shared_address(table + threadIdx.x), ones = shared_address(&common);
  float x[4] = {};
#pragma unroll 1
  for (int round = 0; round < 320; ++round) {
    float v[kBurst];
#pragma unroll
    for (int k = 0; k < kBurst; ++k) {
      v[k] = load_shared_again(mine + 4 * 512 * (k % 16));
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
  return start(args, mio_phases, sm_count(), 512, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale);
}
