/* Sleep between pieces of work.

   A back-off of half a microsecond after each short piece, as a polling loop would do: four warps
   per scheduler could keep it busy, but sleep most of the time.

   bound: latency     limiter: sleeping  cause: sleeping
   twin: yes          output: same
   relieves: no sleep
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(512) sleeper(const float* in, float* out, float a, float b) {
  float x = in[thread_slot()];
  for (int i = 0; i < 240; ++i) {
    x = fma_work(x, a, b, 32);
    if (!kTwin) __nanosleep(500);
  }
  out[thread_slot()] = x;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, sleeper, sm_count(), 512, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.999f, args->scale * 0.01f);
}
