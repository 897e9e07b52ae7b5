/* A long preparation by one thread, a short burst by all.

   One thread per block walks a list to find what the block shall do; 1023 wait for it at the
   barrier. Then all compute at full speed. The trap: the FP32 pipe's average is low although it is
   full whenever it runs, and the arithmetic is not what to improve.

   bound: latency     limiter: barrier   cause: barrier-wait
   twin: yes          output: same
   relieves: the address that the list leads to is computed directly
*/
#include "../probe.cuh"

constexpr int kSteps = 128;

__global__ void __launch_bounds__(1024)
    barrier_late(const unsigned* next, float* out, float a, float b) {
  __shared__ unsigned found;
  if (threadIdx.x == 0) {
    unsigned at = blockIdx.x * 1024u;
    for (int i = 0; i < kSteps; ++i)
      at = kTwin ? (at * kChaseA + kChaseC) & (kBufferWords - 1) : next[at];
    found = at;
  }
  __syncthreads();
  out[thread_slot()] = fma_work(static_cast<float>(found & 1023u), a, b, 512);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, barrier_late, 4 * sm_count(), 1024, 0,
               static_cast<const unsigned*>(args->in[2]), static_cast<float*>(args->out[0]),
               args->scale * 0.999f, args->scale * 0.01f);
}
