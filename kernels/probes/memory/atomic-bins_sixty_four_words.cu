/* Histogram of 64 bins in global memory.

   All threads of the GPU add to 64 words. They lie on different slices of the L2, but each slice
   does the additions to one word one after the other: few slices work, most of the time waiting for
   their own last result. The averages are middling to low.

   bound: memory      limiter: atomics   cause: atomics-contention
   twin: yes          output: finite
   relieves: each block counts in shared memory, a column per lane, and adds 64 sums at its end
*/
#include "../probe.cuh"

constexpr unsigned kBins = 64, kPitch = 64;  // words between two bins

__global__ void __launch_bounds__(256)
    atomic_bins(const unsigned* in, float* bins, float* out, float value) {
  __shared__ float mine[kTwin ? kBins * 32 : 1];
  for (unsigned i = threadIdx.x; kTwin && i < kBins * 32; i += 256) mine[i] = 0.0f;
  __syncthreads();
  float sum = 0.0f;
  for (unsigned i = thread_slot(); i < 1u << 22; i += thread_count()) {
    const unsigned bin = in[i] % kBins;
    if (kTwin) atomicAdd(mine + bin * 32 + threadIdx.x % 32, value);
    else atomicAdd(bins + bin * kPitch, value);
    sum += value;
  }
  __syncthreads();
  if (kTwin && threadIdx.x < kBins) {
    float all = 0.0f;
    for (unsigned c = 0; c < 32; ++c) all += mine[threadIdx.x * 32 + (c + threadIdx.x) % 32];
    atomicAdd(bins + threadIdx.x * kPitch, all);
  }
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, atomic_bins, 2 * sm_count(), 256, 0, static_cast<const unsigned*>(args->in[1]),
               static_cast<float*>(args->out[1]), static_cast<float*>(args->out[0]), args->scale);
}
