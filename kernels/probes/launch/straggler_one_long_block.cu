/* One block of a thousand has fifty times the work.

   A few microseconds after the start one SM is left with one block, and the GPU waits for it. The
   trap: averages over the launch are a few per cent everywhere, and there are blocks enough.

   bound: launch      limiter: imbalance  cause: workload-imbalance
   twin: yes          output: finite
   relieves: the long block's work is shared by all
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(256)
    straggler(const float* in, float* out, float a, float b, int mine, int extra) {
  const int steps = kTwin ? mine + extra / static_cast<int>(gridDim.x)
                          : mine + (blockIdx.x == 0 ? extra : 0);
  out[thread_slot()] = fma_work(in[thread_slot()], a, b, steps);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, straggler, 8 * sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.999f, args->scale * 0.01f, 512,
               25600);
}
