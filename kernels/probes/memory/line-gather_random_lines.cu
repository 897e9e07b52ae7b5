/* Read whole 128-byte lines in random order.

   Every request is coalesced and every sector is used, and plenty are in flight; but neighbours in
   time are no neighbours in memory, so DRAM opens a row for a line or two. It carries three
   quarters of what the pins could, all that this order allows: a DRAM-bound kernel below the usual
   figure.

   bound: memory      limiter: dram      cause: dram-bandwidth
   twin: yes          output: finite
   relieves: random lines of 8 MiB, by 4 MiB of indices: the L2 holds both
*/
#include "../probe.cuh"

constexpr unsigned kLines = 1u << 23;
constexpr unsigned kTable = kTwin ? 1u << 16 : kLines, kIndices = kTwin ? 1u << 20 : kLines;

__global__ void __launch_bounds__(512)
    line_gather(const float* in, const unsigned* index, float* out) {
  float sum = 0.0f;
  const unsigned lane = threadIdx.x % 32, step = thread_count() / 32;
  for (unsigned i = thread_slot() / 32; i < kLines; i += 8 * step) {
    unsigned at[8];
    float v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) at[k] = index[(i + k * step) & (kIndices - 1)];
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = in[(at[k] & (kTable - 1)) * 32 + lane];
#pragma unroll
    for (int k = 0; k < 8; ++k) sum += v[k];
  }
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, line_gather, 4 * sm_count(), 512, 0, static_cast<const float*>(args->in[0]),
               static_cast<const unsigned*>(args->in[1]), static_cast<float*>(args->out[0]));
}
