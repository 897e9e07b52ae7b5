/* A polynomial in double precision.

   Double-precision multiply-adds go at half the single-precision rate on the GPUs that have full
   units (A100, H100) and at 1/64 elsewhere; 64 warps with two chains each keep the pipe full.

   bound: compute     limiter: fp64      cause: fp64-pipe
   twin: yes          output: close
   relieves: the same polynomial in single precision
*/
#include <type_traits>

#include "../probe.cuh"

using Real = std::conditional_t<kTwin, float, double>;

__global__ void __launch_bounds__(256) fp64(const float* in, float* out, float a, float b) {
  Real x[4];
  const Real c = a, d = b;
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = in[thread_slot() + k];
#pragma unroll 8
  for (int round = 0; round < 3000; ++round) {
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = x[k] * c + d;
  }
  out[thread_slot()] = static_cast<float>((x[0] + x[1]) + (x[2] + x[3]));
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, fp64, 8 * sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.999f, args->scale * 0.01f);
}
