/* Use every other word.

   Complex numbers of which only the real part is read: half of every sector is moved for nothing.
   The mild form of wasted sectors, worth at most a factor of two.

   bound: memory      limiter: dram      cause: uncoalesced-access
   twin: yes          output: finite
   relieves: the same number of words, side by side
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(512) sector_half(const float* in, float* out, unsigned pitch) {
  float sum = 0.0f;
  const unsigned step = thread_count(), words = kBufferWords / 2;
  for (unsigned i = thread_slot(); i < words; i += 8 * step) {
    float v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = i + k * step < words ? in[(i + k * step) * pitch] : 0.0f;
#pragma unroll
    for (int k = 0; k < 8; ++k) sum += v[k];
  }
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, sector_half, 4 * sm_count(), 512, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), kTwin ? 1u : 2u);
}
