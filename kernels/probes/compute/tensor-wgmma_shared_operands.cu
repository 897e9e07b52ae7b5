/* wgmma on half precision, both operands in shared memory.

   Two warpgroups per SM, each with 64 x 256 products of depth 16, four in flight: the Hopper way to
   the full tensor rate. Eight warps per SM are few and enough.

   bound: compute     limiter: tensor    cause: tensor-pipe
   twin: no           output: finite
   arch: 90a
*/
#include "../probe.cuh"
#include "../probe_wgmma.cuh"

__global__ void __launch_bounds__(256, 1) tensor_wgmma(const uint4* in, float* out) {
  extern __shared__ __align__(128) uint4 tiles[];  // A: 2 x 64 x 64, B: 256 x 64 halves
  for (int i = threadIdx.x; i < (2 * 64 * 64 + 256 * 64) / 8; i += 256) tiles[i] = in[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const unsigned a = shared_address(tiles) + threadIdx.x / 128 * 64 * 64 * 2;
  const unsigned b = shared_address(tiles) + 2 * 64 * 64 * 2;
  float d[128] = {};
  for (int round = 0; round < 500; ++round) {
    wgmma_arrive();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      wgmma_256(d, wgmma_descriptor(a + k * 2 * 64 * 16, 64),
                wgmma_descriptor(b + k * 2 * 256 * 16, 256));
    wgmma_commit();
    wgmma_wait<0>();
  }
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 128; ++k) sum += d[k];
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, tensor_wgmma, sm_count(), 256, (2 * 64 * 64 + 256 * 64) * 2,
               static_cast<const uint4*>(args->in[3]), static_cast<float*>(args->out[0]));
}
