/* Eight kinds of task, dealt out lane by lane.

   Every warp holds all eight kinds and walks all eight branches with four lanes active in each: the
   FP32 pipe is busy with warp instructions that do an eighth of the work they could.

   bound: compute     limiter: fp32      cause: thread-divergence
   twin: yes          output: same
   relieves: tasks of one kind are next to each other, so that each warp walks one branch
*/
#include "../probe.cuh"

template <int kKind>
__device__ __noinline__ float task(float x, float a, float b) {
  return fma_work(x, a + kKind * 0.0001f, b, 64 + kKind);
}

__global__ void __launch_bounds__(256) diverge8(const float* in, float* out, float a, float b) {
  const unsigned kind = kTwin ? threadIdx.x / 32 : threadIdx.x % 8;
  const unsigned item = kTwin ? blockIdx.x * 256 + threadIdx.x % 32 * 8 + kind : thread_slot();
  float x = in[item];
  for (int round = 0; round < 5; ++round) {
    switch (kind) {
      case 0: x = task<0>(x, a, b); break;
      case 1: x = task<1>(x, a, b); break;
      case 2: x = task<2>(x, a, b); break;
      case 3: x = task<3>(x, a, b); break;
      case 4: x = task<4>(x, a, b); break;
      case 5: x = task<5>(x, a, b); break;
      case 6: x = task<6>(x, a, b); break;
      default: x = task<7>(x, a, b); break;
    }
    __syncwarp();
  }
  out[item] = x;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, diverge8, 16 * sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.99f, args->scale * 0.01f);
}
