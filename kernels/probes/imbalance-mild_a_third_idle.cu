/* Block n has 80 + n pieces of work.

   The milder half of causal attention: the last block has more than twice the work of the first,
   and on average an SM is busy two thirds of the time. While it is, its schedulers issue on most
   cycles; over the whole launch nothing is near its peak.

   bound: launch      limiter: imbalance  cause: workload-imbalance
   twin: yes          output: same
   relieves: the pieces are dealt out evenly
*/
#include "../common/probe.cuh"

constexpr unsigned kLeast = 79;  // and block n has n + 1 pieces more

__global__ void __launch_bounds__(1024)
    imbalance_mild(const float* in, float* out, float a, float b) {
  extern __shared__ float room[];
  room[threadIdx.x] = b;
  const unsigned n = blockIdx.x, blocks = gridDim.x;
  const unsigned before = n * kLeast + n * (n + 1) / 2;
  const unsigned all = blocks * kLeast + blocks * (blocks + 1) / 2;
  const unsigned first = kTwin ? n : before, step = kTwin ? blocks : 1;
  const unsigned end = kTwin ? all : first + kLeast + n + 1;
  for (unsigned piece = first; piece < end; piece += step) {
    const unsigned item = piece * 1024 + threadIdx.x;
    out[item] = fma_work(in[item], a, room[threadIdx.x], 64);
  }
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, imbalance_mild, sm_count(), 1024, shared_for_blocks(1),
               static_cast<const float*>(args->in[0]), static_cast<float*>(args->out[0]),
               args->scale * 0.999f, args->scale * 0.01f);
}
