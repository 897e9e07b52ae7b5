/* A small array per thread, indexed by a number known only at run time.

   Registers have no index, so the array lies in local memory: each access is a load or a store,
   four bytes for each of 32 lanes. The L1 writes through, so the stores fill the L2.

   bound: memory      limiter: l2        cause: local-memory
   twin: yes          output: same
   relieves: the indices are known when compiling, so the array is in registers
*/
#include "../probe.cuh"

constexpr int kSlots = 32;

__global__ void __launch_bounds__(256) local_array(const float* in, float* out, float a, int step) {
  float slot[kSlots];
#pragma unroll
  for (int k = 0; k < kSlots; ++k) slot[k] = in[thread_slot() + k];
  int at = 0;
  for (int round = 0; round < 60; ++round) {
#pragma unroll
    for (int k = 0; k < kSlots; ++k) {
      if (kTwin) {
        slot[(k + 1) % kSlots] = fmaf(slot[k], a, slot[(k + 1) % kSlots]);
      } else {
        const int next = (at + step) % kSlots;
        slot[next] = fmaf(slot[at], a, slot[next]);
        at = next;
      }
    }
  }
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < kSlots; ++k) sum += slot[k];
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, local_array, 4 * sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.01f,
               static_cast<int>(args->scale));
}
