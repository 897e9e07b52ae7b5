/* A few blocks more than fit at once.

   One large block per SM, and six blocks more than SMs: after the first round, six SMs work through
   a second round that takes as long while the rest are idle. While it runs, each SM's FP32 pipe is
   full; over the launch it is half idle.

   bound: launch      limiter: tail      cause: tail-effect
   twin: yes          output: same
   relieves: the same work in sixteen times as many blocks
*/
#include "../probe.cuh"

constexpr int kPieces = 16;

__global__ void __launch_bounds__(1024) tail(const float* in, float* out, float a, float b) {
  extern __shared__ float room[];
  room[threadIdx.x] = b;
  const int pieces = kTwin ? 1 : kPieces;
  for (int p = 0; p < pieces; ++p) {
    const unsigned item = (blockIdx.x * pieces + p) * 1024 + threadIdx.x;
    out[item] = fma_work(in[item], a, room[threadIdx.x], 256);
  }
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, tail, (sm_count() + 6) * (kTwin ? kPieces : 1), 1024, shared_for_blocks(1),
               static_cast<const float*>(args->in[0]), static_cast<float*>(args->out[0]),
               args->scale * 0.999f, args->scale * 0.01f);
}
