/* Walk linked lists in shared memory.

   Every lane follows a list in its own bank: no conflicts, one load in flight per warp, about
   thirty cycles a step. With two warps per scheduler the shared pipe is three quarters idle and
   every warp waits for its last load.

   bound: latency     limiter: short_scoreboard  cause: short-scoreboard
   twin: yes          output: same
   relieves: the same locations, their addresses computed in advance: eight loads in flight per warp
*/
#include "../probe.cuh"

constexpr unsigned kNodes = 256, kA = 165u, kC = 77u;

__global__ void __launch_bounds__(256) chase_shared(float* out, int steps, unsigned one) {
  __shared__ unsigned next[kNodes * 32];
  const unsigned lane = threadIdx.x % 32;
  for (unsigned i = threadIdx.x; i < kNodes * 32; i += 256)
    next[i] = (i / 32 * kA + kC * one) % kNodes;
  __syncthreads();
  unsigned at = thread_slot() % kNodes, sum = 0;
  if (kTwin) {
#pragma unroll 8
    for (int i = 0; i < steps; ++i) {
      sum += next[at * 32 + lane];
      at = (at * kA + kC) % kNodes;
    }
  } else {
    for (int i = 0; i < steps; ++i) {
      at = next[at * 32 + lane];
      sum += at;
    }
  }
  out[thread_slot()] = static_cast<float>(sum);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, chase_shared, sm_count(), 256, 0, static_cast<float*>(args->out[0]), 10000,
               static_cast<unsigned>(args->scale));
}
