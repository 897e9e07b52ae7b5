/* Each warp reads shared memory in a burst, then computes.

   One warp per scheduler: 64 shared loads back to back, a barrier, then 256 multiply-adds. The
   shared pipe takes a load every fourth cycle from each scheduler, which the compiler knows and
   writes into the instructions as a fixed wait; while it lasts the FP32 pipe idles, and then the
   other way round. Each unit is half busy on average, and a single warp has nobody to fill the
   gaps.

   bound: latency     limiter: wait      cause: fixed-latency
   twin: yes          output: same
   relieves: each load is issued with the arithmetic of an earlier one; the barriers remain
*/
#include "../probe.cuh"

constexpr int kBurst = 64;

__device__ __forceinline__ void math(float (&x)[4], float a, float v) {
#pragma unroll
  for (int j = 0; j < 4; ++j) x[j] = fmaf(x[j], a, v);
}

__global__ void __launch_bounds__(128) mio_burst(const float* in, float* out, float a) {
  __shared__ float table[kBurst * 128], factor;
  for (int i = threadIdx.x; i < kBurst * 128; i += 128) table[i] = in[i];
  factor = a;
  __syncthreads();
  const unsigned mine = shared_address(table + threadIdx.x), common = shared_address(&factor);
  float x[4] = {};
#pragma unroll 1
  for (int round = 0; round < 600; ++round) {
    float v[kBurst];
#pragma unroll
    for (int k = 0; k < kBurst; ++k) {
      v[k] = load_shared_again(mine + 4 * 128 * k);
      if (kTwin && k > 7) math(x, a, v[k - 8]);
    }
    __syncthreads();
    // What is loaded behind the barrier keeps the arithmetic behind it too.
    const float now = kTwin ? a : load_shared_again(common);
#pragma unroll
    for (int k = kTwin ? kBurst - 8 : 0; k < kBurst; ++k) math(x, now, v[k]);
    __syncthreads();
  }
  out[thread_slot()] = (x[0] + x[1]) + (x[2] + x[3]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, mio_burst, sm_count(), 128, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.5f);
}
