/* Few warps because each block asks for much shared memory.

   Two blocks of four warps fit an SM. Each warp waits for its load before asking for the next, and
   eight loads in flight per SM use a sixth of DRAM.

   bound: latency     limiter: long_scoreboard  cause: occupancy-shared
   twin: yes          output: same
   relieves: the request is small, so all warps fit an SM
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(128) occupancy_shared(const float4* in, float* out) {
  extern __shared__ float room[];
  room[threadIdx.x] = 0.5f;
  float sum = room[threadIdx.x];
#pragma unroll 1
  for (unsigned i = thread_slot(); i < 1u << 24; i += thread_count()) {
    const float4 v = in[i];
    sum += (v.x + v.y) + (v.z + v.w);
    opaque(sum);
  }
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, occupancy_shared, 32 * sm_count(), 128, kTwin ? 512 : shared_for_blocks(2),
               static_cast<const float4*>(args->in[0]), static_cast<float*>(args->out[0]));
}
