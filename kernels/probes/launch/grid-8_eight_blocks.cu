/* Eight blocks compute.

   Eight SMs have a full FP32 pipe, the others have nothing: an average of some per cent that would
   be 97 % on the SMs that work.

   bound: launch      limiter: grid_too_small  cause: grid-too-small
   twin: yes          output: same
   relieves: the same threads' work in 264 smaller pieces on all SMs
*/
#include "../probe.cuh"

constexpr int kItems = 264 * 1024;  // threads' worth of work

__global__ void __launch_bounds__(1024) grid_8(const float* in, float* out, float a, float b) {
  for (unsigned i = thread_slot(); i < kItems; i += thread_count())
    out[i] = fma_work(in[i], a, b, 256);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, grid_8, kTwin ? 264 : 8, 1024, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.999f, args->scale * 0.01f);
}
