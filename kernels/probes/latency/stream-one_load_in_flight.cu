/* Stream with one small load in flight per thread.

   All 64 warps of each SM are there, but each waits for its 4 bytes before asking for the next:
   64 x 128 bytes in flight per SM are half of what latency times bandwidth asks for.

   bound: latency     limiter: long_scoreboard  cause: long-scoreboard
   twin: yes          output: finite
   relieves: eight loads are in flight per thread
*/
#include "../probe.cuh"

constexpr int kTogether = kTwin ? 8 : 1;

__global__ void __launch_bounds__(512) stream_one(const float* in, float* out) {
  float sum = 0.0f;
  const unsigned step = thread_count();
  const float* at = in + thread_slot();
#pragma unroll 1
  for (int i = 0; i < 640; i += kTogether, at += kTogether * step) {
    float v[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) v[k] = __ldcg(at + k * step);
#pragma unroll
    for (int k = 0; k < kTogether; ++k) sum += v[k];
    opaque(sum);
  }
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, stream_one, 4 * sm_count(), 512, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]));
}
