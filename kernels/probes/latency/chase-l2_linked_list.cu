/* Walk linked lists that the L2 holds.

   Each warp follows one list: the next address is the value just loaded, so one load is in flight
   per warp and a step takes a whole L2 latency. All 64 warps of each SM do so and still ask for
   little of its bandwidth.

   bound: latency     limiter: long_scoreboard  cause: long-scoreboard
   twin: yes          output: same
   relieves: the same locations, their addresses computed in advance: eight loads in flight per warp
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(512)
    chase_l2(const unsigned* next, float* out, unsigned mask, int steps) {
  unsigned at = (thread_slot() / 32 * 0x9E3779B9u) & mask, sum = 0;
  if (kTwin) {
#pragma unroll 8
    for (int i = 0; i < steps; ++i) {
      sum += next[at] & mask;
      at = (at * kChaseA + kChaseC) & mask;
    }
  } else {
    for (int i = 0; i < steps; ++i) sum += at = next[at] & mask;
  }
  out[thread_slot()] = static_cast<float>(sum);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, chase_l2, 4 * sm_count(), 512, 0, static_cast<const unsigned*>(args->in[2]),
               static_cast<float*>(args->out[0]), (1u << 22) - 1, 1200);
}
