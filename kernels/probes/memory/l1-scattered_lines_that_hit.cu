/* Read words 128 bytes apart that the L1 holds.

   Each lane hits another line, so one load needs 32 tag look-ups and, all words lying on one bank,
   32 wavefronts. Nothing leaves the SM: L2 and DRAM are idle, the L1 is full.

   bound: memory      limiter: l1        cause: uncoalesced-access
   twin: yes          output: finite
   relieves: the same loads from consecutive words
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(256) l1_scattered(const float* in, float* out, int pitch) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const float* mine = in + warp * 1024 + lane * pitch;  // 4 KiB a warp, 32 KiB a block, all blocks
  float sum[4] = {};
  for (int round = 0; round < 16; ++round) {
    forget_memory();
#pragma unroll
    for (int k = 0; k < 16; ++k) sum[k % 4] += mine[2 * k];
  }
  out[thread_slot()] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, l1_scattered, 8 * sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), kTwin ? 1 : 32);
}
