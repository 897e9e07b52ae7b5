/* Two lanes on every second bank: 2-way conflicts.

   With words 8 bytes apart, lanes 0-15 and 16-31 meet on the even banks: two passes per load, half
   of shared memory's bandwidth lost. The mild form, worth at most a factor of two.

   bound: memory      limiter: shared    cause: shared-bank-conflicts
   twin: yes          output: finite
   relieves: the same loads of consecutive words
*/
#include "../probe.cuh"

constexpr int kStride = kTwin ? 1 : 2, kRounds = 4800;

__global__ void __launch_bounds__(256) conflict2(const float* in, float* out) {
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
  return start(args, conflict2, 8 * sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]));
}
