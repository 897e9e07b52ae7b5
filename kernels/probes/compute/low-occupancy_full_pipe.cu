/* One warp per scheduler that never waits.

   A large shared-memory request leaves room for one block of four warps per SM: 6 % occupancy.
   Eight independent chains per thread feed the FP32 pipe all the same. The trap: low occupancy is
   not a cause when the pipe is full.

   bound: compute     limiter: fp32      cause: fp32-pipe
   twin: no           output: finite
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(128)
    low_occupancy(const float* in, float* out, float a, float b) {
  extern __shared__ float room[];
  room[threadIdx.x] = b;
  float x[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = in[thread_slot() + k];
#pragma unroll 8
  for (int round = 0; round < 12000; ++round) {
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = fmaf(x[k], a, b);
  }
  float sum = room[threadIdx.x];
#pragma unroll
  for (int k = 0; k < 8; ++k) sum += x[k];
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, low_occupancy, 4 * sm_count(), 128, shared_for_blocks(1),
               static_cast<const float*>(args->in[0]), static_cast<float*>(args->out[0]),
               args->scale * 0.999f, args->scale * 0.01f);
}
