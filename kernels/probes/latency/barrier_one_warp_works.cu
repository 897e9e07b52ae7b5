/* One warp works while 31 wait at the barrier.

   In each step warp 0 advances the values of the whole block, then everybody meets. Two blocks per
   SM: 62 of 64 warps wait at any time, and the two that work have no company to hide their latency.

   bound: latency     limiter: barrier   cause: barrier-wait
   twin: yes          output: same
   relieves: every warp advances its own values
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(1024)
    barrier(const float* in, float* out, float a, float b) {
  __shared__ float value[1024];
  value[threadIdx.x] = in[thread_slot()];
  __syncthreads();
  for (int step = 0; step < 24; ++step) {
    if (kTwin) {
      value[threadIdx.x] = fma_work(value[threadIdx.x], a, b, 64);
    } else if (threadIdx.x < 32) {
      for (int i = threadIdx.x; i < 1024; i += 32) value[i] = fma_work(value[i], a, b, 64);
    }
    __syncthreads();
  }
  out[thread_slot()] = value[threadIdx.x];
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, barrier, 2 * sm_count(), 1024, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.999f, args->scale * 0.01f);
}
