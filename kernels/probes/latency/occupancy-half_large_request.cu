/* Half of the warps because of shared memory.

   One block of 32 warps fits an SM; each warp has one load in flight. DRAM is half busy: a middling
   throughput that is no roof, since twice the warps do better.

   bound: latency     limiter: long_scoreboard  cause: occupancy-shared
   twin: yes          output: same
   relieves: the request is small, so all warps fit an SM
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(1024) occupancy_half(const float2* in, float* out) {
  extern __shared__ float room[];
  room[threadIdx.x] = 0.5f;
  float sum = room[threadIdx.x];
#pragma unroll 1
  for (unsigned i = thread_slot(); i < 1u << 25; i += thread_count()) {
    const float2 v = in[i];
    sum += v.x + v.y;
    opaque(sum);
  }
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, occupancy_half, 4 * sm_count(), 1024, kTwin ? 4096 : shared_for_blocks(1),
               static_cast<const float2*>(args->in[0]), static_cast<float*>(args->out[0]));
}
