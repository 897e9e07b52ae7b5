/* Read shared memory 16 bytes at a time, without conflicts.

   Every 16-byte warp load needs four passes of 128 bytes, the most that shared memory gives; one
   addition per word keeps the other pipes at a quarter. No pass is wasted.

   bound: memory      limiter: shared    cause: shared-bandwidth
   twin: yes          output: same
   relieves: each vector is loaded once and kept in registers for all rounds
*/
#include "../probe.cuh"

constexpr int kKept = 4, kRounds = 500;

__global__ void __launch_bounds__(256) shared_read(const float4* in, float* out) {
  __shared__ float4 table[kKept * 256];
  const unsigned mine = shared_address(table + threadIdx.x);
  for (int k = 0; k < kKept; ++k) table[k * 256 + threadIdx.x] = in[k * 256 + threadIdx.x];
  __syncthreads();
  float4 kept[kKept];
  float sum[4] = {};
  for (int k = 0; k < kKept; ++k) kept[k] = table[k * 256 + threadIdx.x];
#pragma unroll 2
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      if (!kTwin) kept[k] = load_shared4_again(mine + k * 256 * 16);
      opaque(kept[k].x), opaque(kept[k].y), opaque(kept[k].z), opaque(kept[k].w);
      sum[0] += kept[k].x, sum[1] += kept[k].y, sum[2] += kept[k].z, sum[3] += kept[k].w;
    }
  }
  out[thread_slot()] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, shared_read, 8 * sm_count(), 256, 0, static_cast<const float4*>(args->in[0]),
               static_cast<float*>(args->out[0]));
}
