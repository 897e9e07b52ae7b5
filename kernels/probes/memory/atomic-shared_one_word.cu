/* Add everything to one word of shared memory.

   A warp's 32 additions to one word are done one after the other inside the SM, each a pass through
   shared memory of its own; so are those of all warps. Nothing leaves the SM.

   bound: memory      limiter: shared    cause: atomics-contention
   twin: yes          output: same
   relieves: one word per lane, added up at the end
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(256)
    atomic_shared(const unsigned* in, float* out, unsigned pitch) {
  __shared__ unsigned bins[256];
  bins[threadIdx.x] = 0;
  __syncthreads();
  unsigned x = in[threadIdx.x];
  unsigned at = threadIdx.x * pitch;
  for (int round = 0; round < 24; ++round) {
#pragma unroll 8
    for (int k = 0; k < 8; ++k) {
      opaque(at);
      atomicAdd(bins + at, x & 15u);
      x = x * 5u + 1u;
    }
  }
  __syncthreads();
  unsigned all = kTwin ? 0u : bins[0];
  for (int i = 0; kTwin && i < 256; ++i) all += bins[i];
  out[thread_slot()] = static_cast<float>(all);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, atomic_shared, 8 * sm_count(), 256, 0,
               static_cast<const unsigned*>(args->in[1]), static_cast<float*>(args->out[0]),
               kTwin ? static_cast<unsigned>(args->scale) : 0u);
}
