/* Gather 16 Mi words at random places of one gibibyte.

   Each lane's word lies in a sector of its own that nobody else wants: 32 bytes (64 on the DRAM
   side) move for four. Plenty of loads are in flight, yet DRAM gets no further than half of what
   its pins could carry, because each access opens another row. The trap: 50 % is a roof here.

   bound: memory      limiter: dram      cause: uncoalesced-access
   twin: yes          output: finite
   relieves: the same number of words at consecutive places
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(512)
    gather_dram(const float* in, const unsigned* index, float* out, bool consecutive) {
  const unsigned step = thread_count(), words = 1u << 24;
  float sum = 0.0f;
  for (unsigned i = thread_slot(); i < words; i += 8 * step) {
    unsigned at[8];
    float v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) at[k] = i + k * step < words ? index[i + k * step] : 0u;
#pragma unroll
    for (int k = 0; k < 8; ++k)
      v[k] = in[(consecutive ? i + k * step + (at[k] >> 31) : at[k]) & (kBufferWords - 1)];
#pragma unroll
    for (int k = 0; k < 8; ++k) sum += v[k];
  }
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, gather_dram, 4 * sm_count(), 512, 0, static_cast<const float*>(args->in[0]),
               static_cast<const unsigned*>(args->in[1]), static_cast<float*>(args->out[0]),
               kTwin);
}
