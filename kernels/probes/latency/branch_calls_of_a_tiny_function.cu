/* Calls of a function that does next to nothing.

   Two jumps, there and back, for each addition: after a jump a warp cannot go on until the target
   is known and its instructions are there. With two warps per scheduler nothing covers that time.

   bound: latency     limiter: branch_resolving  cause: branch-resolving
   twin: yes          output: same
   relieves: the function is inlined
*/
#include "../probe.cuh"

__device__ __noinline__ float far_sum(float x, float a) {
  asm volatile("");  // has an effect, as far as the compiler knows: it is called each time
  return x + a;
}

__global__ void __launch_bounds__(256) branch(const float* in, float* out, float a) {
  float x = in[thread_slot()];
#pragma unroll 1
  for (int i = 0; i < 4800; ++i) x = kTwin ? x + a : far_sum(x, a);
  out[thread_slot()] = x;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, branch, sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.5f);
}
