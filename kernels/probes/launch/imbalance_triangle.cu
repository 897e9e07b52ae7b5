/* Block n has n pieces of work.

   As in causal attention without a schedule: one large block per SM, the last with the most to do.
   On average an SM is busy half of the time.

   bound: launch      limiter: imbalance  cause: workload-imbalance
   twin: yes          output: same
   relieves: the pieces are dealt out evenly
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(1024) imbalance(const float* in, float* out, float a, float b) {
  extern __shared__ float room[];
  room[threadIdx.x] = b;
  const unsigned n = blockIdx.x, blocks = gridDim.x;
  const unsigned first = kTwin ? n : n * (n + 1) / 2, step = kTwin ? blocks : 1;
  const unsigned end = kTwin ? blocks * (blocks + 1) / 2 : first + n + 1;
  for (unsigned piece = first; piece < end; piece += step) {
    const unsigned item = piece * 1024 + threadIdx.x;
    out[item] = fma_work(in[item], a, room[threadIdx.x], 64);
  }
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, imbalance, sm_count(), 1024, shared_for_blocks(1),
               static_cast<const float*>(args->in[0]), static_cast<float*>(args->out[0]),
               args->scale * 0.999f, args->scale * 0.01f);
}
