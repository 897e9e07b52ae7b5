/* A warpgroup that waits for one of its warps before each product.

   wgmma starts when all four warps have arrived. One of them first does arithmetic that the others
   do not have; they stand at the arrival. Tensor cores and FP32 pipe are mostly idle.

   bound: latency     limiter: gmma      cause: gmma-wait
   twin: yes          output: finite
   arch: 90a
   relieves: the arithmetic is shared by the four warps
*/
#include "../probe.cuh"
#include "../probe_wgmma.cuh"

__global__ void __launch_bounds__(128, 1) gmma(const uint4* in, float* out, float w, float v) {
  __shared__ __align__(128) uint4 tiles[(64 * 16 + 8 * 16) / 8];
  for (int i = threadIdx.x; i < (64 * 16 + 8 * 16) / 8; i += 128) tiles[i] = in[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const uint64_t a = wgmma_descriptor(shared_address(tiles), 64);
  const uint64_t b = wgmma_descriptor(shared_address(tiles) + 64 * 16 * 2, 8);
  float d[4] = {}, x = w;
  for (int round = 0; round < 320; ++round) {
    if (kTwin) x = fma_chain(x, w, v, 64);
    else if (threadIdx.x < 32) x = fma_chain(x, w, v, 256);
    wgmma_arrive();
    wgmma_8(d, a, b);
    wgmma_commit();
    wgmma_wait<0>();
  }
  out[thread_slot()] = (d[0] + d[1]) + (d[2] + d[3]) + x;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, gmma, sm_count(), 128, 0, static_cast<const uint4*>(args->in[3]),
               static_cast<float*>(args->out[0]), args->scale * 0.999f, args->scale * 0.01f);
}
