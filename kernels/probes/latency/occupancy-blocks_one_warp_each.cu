/* Half of the warps because blocks are one warp.

   An SM holds at most 32 blocks (24 or 16 on some GPUs) whatever their size: with 32 threads each,
   half of its 64 warps. Each warp has one small load in flight, so twice the warps are worth twice
   the speed.

   bound: latency     limiter: long_scoreboard  cause: occupancy-blocks
   twin: yes          output: same
   relieves: eight warps per block
*/
#include "../probe.cuh"

__global__ void occupancy_blocks(const float* in, float* out) {
  float sum = 0.0f;
#pragma unroll 1
  for (unsigned i = thread_slot(); i < 1u << 26; i += thread_count()) {
    sum += __ldcg(in + i);
    opaque(sum);
  }
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, occupancy_blocks, (kTwin ? 16 : 128) * sm_count(), kTwin ? 256 : 32, 0,
               static_cast<const float*>(args->in[0]), static_cast<float*>(args->out[0]));
}
