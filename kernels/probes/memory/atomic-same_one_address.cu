/* Add everything to one word of global memory.

   All additions meet in one L2 slice, which does them one after the other: that slice is busy all
   the time, the other slices, the SMs and DRAM do next to nothing, and every average reads near
   zero. The trap: throughput figures alone call this latency.

   bound: memory      limiter: atomics   cause: atomics-contention
   twin: yes          output: finite
   relieves: each block adds up in registers first and makes one addition per warp
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(256) atomic_same(const float* in, float* total, float* out) {
  float sum = 0.0f;
  for (int k = 0; k < 8; ++k) {
    const float x = in[thread_slot() + k * thread_count()];
    if (!kTwin) atomicAdd(total, x);
    sum += x;
  }
  if (kTwin) {
    float all = sum;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) all += __shfl_xor_sync(~0u, all, offset);
    if (threadIdx.x % 32 == 0) atomicAdd(total, all);
  }
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, atomic_same, sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[1]), static_cast<float*>(args->out[0]));
}
