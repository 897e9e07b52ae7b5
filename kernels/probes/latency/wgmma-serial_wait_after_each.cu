/* Small wgmma products, each waited for.

   One warpgroup per SM issues a 64 x 8 x 16 product and waits until it is done before the next: the
   latency of the asynchronous product is the time, and the tensor cores are nearly idle. The trap:
   the hardware books the wait for wgmma results as "barrier", although no barrier is executed.

   bound: latency     limiter: barrier   cause: wgmma-wait
   twin: yes          output: close
   arch: 90a
   relieves: sixteen products are in flight before the wait
*/
#include "../probe.cuh"
#include "../probe_wgmma.cuh"

__global__ void __launch_bounds__(128, 1) wgmma_serial(const uint4* in, float* out) {
  __shared__ __align__(128) uint4 tiles[(64 * 16 + 8 * 16) / 8];
  for (int i = threadIdx.x; i < (64 * 16 + 8 * 16) / 8; i += 128) tiles[i] = in[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const uint64_t a = wgmma_descriptor(shared_address(tiles), 64);
  const uint64_t b = wgmma_descriptor(shared_address(tiles) + 64 * 16 * 2, 8);
  float d[4] = {};
  for (int round = 0; round < 400; ++round) {
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      if (!kTwin || k == 0) wgmma_arrive();
      wgmma_8(d, a, b);
      if (!kTwin || k == 15) {
        wgmma_commit();
        wgmma_wait<0>();
      }
    }
  }
  out[thread_slot()] = (d[0] + d[1]) + (d[2] + d[3]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, wgmma_serial, sm_count(), 128, 0, static_cast<const uint4*>(args->in[3]),
               static_cast<float*>(args->out[0]));
}
