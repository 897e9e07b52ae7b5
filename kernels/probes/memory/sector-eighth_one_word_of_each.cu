/* Use four bytes of every 32-byte sector.

   Neighbouring threads read words 32 bytes apart, as when one field of a 32-byte struct is summed.
   Memory moves whole sectors, so 1 GiB crosses the DRAM bus for 128 MiB that anyone wants. The bus
   is full; what fills it is the access pattern.

   bound: memory      limiter: dram      cause: uncoalesced-access
   twin: yes          output: finite
   relieves: the same number of words, side by side (struct of arrays)
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(512) sector_eighth(const float* in, float* out, unsigned pitch) {
  float sum = 0.0f;
  const unsigned step = thread_count(), words = kBufferWords / 8;
  for (unsigned i = thread_slot(); i < words; i += 4 * step) {
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = i + k * step < words ? in[(i + k * step) * pitch] : 0.0f;
    sum += (v[0] + v[1]) + (v[2] + v[3]);
  }
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, sector_eighth, 4 * sm_count(), 512, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), kTwin ? 1u : 8u);
}
