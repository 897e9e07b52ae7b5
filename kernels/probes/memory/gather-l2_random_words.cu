/* Gather words at random places of a table that the L2 holds.

   16 MiB fit the L2 and not the L1: every lane's word is an L2 sector of its own, and the L2 hands
   out eight times the bytes that are used. DRAM sees the index stream only, once.

   bound: memory      limiter: l2        cause: uncoalesced-access
   twin: yes          output: finite
   relieves: the same number of words at consecutive places of the table
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(512)
    gather_l2(const float* in, const unsigned* index, float* out, bool consecutive) {
  const unsigned step = thread_count(), words = 1u << 22;
  float sum = 0.0f;
  for (int round = 0; round < 8; ++round) {
    for (unsigned i = thread_slot(); i < words; i += 8 * step) {
      unsigned at[8];
      float v[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) at[k] = i + k * step < words ? index[i + k * step] : 0u;
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const unsigned next = i + k * step + (at[k] >> 31);
        v[k] = in[((consecutive ? next : at[k]) + round * 977 * 32) & ((1u << 22) - 1)];
      }
#pragma unroll
      for (int k = 0; k < 8; ++k) sum += v[k];
    }
  }
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, gather_l2, 4 * sm_count(), 512, 0, static_cast<const float*>(args->in[0]),
               static_cast<const unsigned*>(args->in[1]), static_cast<float*>(args->out[0]),
               kTwin);
}
