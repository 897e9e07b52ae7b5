/* All lanes on one bank: 32-way conflicts.

   Words 128 bytes apart, a column of a 32-wide tile: 32 passes per load, 1/32 of the bandwidth.
   No other unit has anything to do.

   bound: memory      limiter: shared    cause: shared-bank-conflicts
   twin: yes          output: finite
   relieves: the same loads of consecutive words
*/
#include "../probe.cuh"

constexpr int kStride = kTwin ? 1 : 32, kRounds = 300;

__global__ void __launch_bounds__(256) conflict32(const float* in, float* out) {
  __shared__ float table[32 * 32 + 16];
  for (int i = threadIdx.x; i < 32 * 32 + 16; i += 256) table[i] = in[i];
  __syncthreads();
  const unsigned mine = shared_address(table + threadIdx.x % 32 * kStride);
  float sum[4] = {};
  for (int round = 0; round < kRounds / 16; ++round) {
#pragma unroll
    for (int k = 0; k < 16; ++k) sum[k % 4] += load_shared_again(mine + 4 * k);
  }
  out[thread_slot()] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, conflict32, 8 * sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]));
}
