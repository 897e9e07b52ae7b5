/* Weighted histogram in shared memory of values that crowd in a few bins.

   Seven of eight values fall into four of 256 bins, as in a dark picture: most lanes of a warp add
   to the same words, and their additions queue in the SM.

   bound: memory      limiter: shared    cause: atomics-contention
   twin: yes          output: same
   relieves: each lane adds in a column of its own, so no two lanes meet on a bank
*/
#include "../probe.cuh"

constexpr int kBins = 256, kColumns = kTwin ? 32 : 1;

__global__ void __launch_bounds__(512) histogram(const uint4* in, float* out) {
  extern __shared__ unsigned bins[];
  for (int i = threadIdx.x; i < kBins * kColumns; i += 512) bins[i] = 0;
  __syncthreads();
  const unsigned column = kTwin ? threadIdx.x % 32 : 0;
  for (unsigned i = thread_slot(); i < 1u << 22; i += thread_count()) {
    const uint4 v = in[i];
    const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      const unsigned byte = words[k / 4] >> (k % 4 * 8) & 255u;
      const unsigned bin = byte < 32 ? byte * 8 : byte & 3u;
      atomicAdd(bins + bin * kColumns + column, byte);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kBins; i += 512) {
    unsigned all = 0;
    for (int c = 0; c < kColumns; ++c) all += bins[i * kColumns + (c + i) % kColumns];
    out[blockIdx.x * kBins + i] = static_cast<float>(all);
  }
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, histogram, 4 * sm_count(), 512, kBins * kColumns * 4,
               static_cast<const uint4*>(args->in[1]), static_cast<float*>(args->out[0]));
}
