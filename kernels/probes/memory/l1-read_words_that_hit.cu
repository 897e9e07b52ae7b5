/* Read words that the L1 holds, one after the other.

   A block goes over its own 16 KiB time and again. Each 4-byte warp load is one request and one
   128-byte wavefront: the load/store pipe and the L1 data stage fill together, and Nsight Compute
   shows SM throughput and L1 throughput at the same height. The trap: that is one limit seen twice,
   and not compute beside memory.

   bound: memory      limiter: l1        cause: l1-bandwidth
   twin: yes          output: same
   relieves: each word is loaded once and kept in a register for all rounds
*/
#include "../probe.cuh"

constexpr int kKept = 16, kRounds = 500;

__global__ void __launch_bounds__(256) l1_read(const float* in, float* out) {
  const float* mine = in + blockIdx.x * 256 * kKept + threadIdx.x;
  float sum[4] = {}, kept[kKept];
  for (int k = 0; k < kKept; ++k) kept[k] = mine[k * 256];
  for (int round = 0; round < kRounds; ++round) {
    if (!kTwin) forget_memory();
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      if (!kTwin) kept[k] = mine[k * 256];
      opaque(kept[k]);
      sum[k % 4] += kept[k];
    }
  }
  out[thread_slot()] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, l1_read, 8 * sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]));
}
