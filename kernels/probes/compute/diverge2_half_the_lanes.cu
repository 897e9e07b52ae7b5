/* Only the odd lanes have work.

   A test that every other element passes, followed by long arithmetic: half of each warp waits.
   Worth at most a factor of two.

   bound: compute     limiter: fp32      cause: thread-divergence
   twin: yes          output: same
   relieves: the elements that pass are gathered first, so that warps are full
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(256) diverge2(const float* in, float* out, float a, float b) {
  const unsigned half = blockDim.x / 2, t = threadIdx.x;
  const unsigned mine = kTwin ? (t < half ? 2 * t + 1 : 2 * (t - half)) : t;
  const unsigned item = blockIdx.x * blockDim.x + mine;
  float x = in[item];
  if (mine % 2) {
    x = fma_work(x, a, b, 1500);
  } else {
    x = x + b;
  }
  out[item] = x;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, diverge2, 32 * sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.99f, args->scale * 0.01f);
}
