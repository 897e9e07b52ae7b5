/* Twelve full waves and a bit.

   The last wave is nearly empty, as in a kernel that suffers from its tail, but it is one of
   thirteen: the FP32 pipe is full for over nine tenths of the time and is what counts.

   bound: compute     limiter: fp32      cause: fp32-pipe
   twin: no           output: finite
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(1024) tail_small(const float* in, float* out, float a, float b) {
  extern __shared__ float room[];
  room[threadIdx.x] = b;
  out[thread_slot()] = fma_work(in[thread_slot()], a, room[threadIdx.x], 1024);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, tail_small, 12 * sm_count() + 6, 1024, shared_for_blocks(1),
               static_cast<const float*>(args->in[0]), static_cast<float*>(args->out[0]),
               args->scale * 0.999f, args->scale * 0.01f);
}
