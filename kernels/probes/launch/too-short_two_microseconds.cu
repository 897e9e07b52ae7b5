/* A launch of two microseconds.

   One multiply-add per thread on 64 KiB: starting and ending the grid takes longer than its work,
   and no counter of such a launch says anything about a roof.

   bound: launch      limiter: too_short  cause: short-kernel
   twin: no           output: finite
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(128) too_short(const float* in, float* out, float a) {
  out[thread_slot()] = fmaf(in[thread_slot()], a, 1.0f);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, too_short, sm_count(), 128, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale);
}
