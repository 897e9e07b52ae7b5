/* Read 16 MiB again and again.

   The table fits the L2 (50 MB and more) and is 64 times an L1; the loads skip the L1 anyway. After
   the first round nothing comes from DRAM: what the L2 can hand to the SMs is the limit.

   bound: memory      limiter: l2        cause: l2-bandwidth
   twin: yes          output: finite
   relieves: the same loads go round in 64 KiB through the L1
*/
#include "../probe.cuh"

__device__ __forceinline__ float4 fetch(const float4* at) { return kTwin ? *at : __ldcg(at); }

__global__ void __launch_bounds__(512) l2_read(const float4* in, float* out, unsigned mask) {
  float sum = 0.0f;
  const unsigned step = thread_count();
  for (unsigned i = thread_slot(); i < 1u << 27; i += 4 * step) {
    float4 v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = fetch(in + ((i + k * step) & mask));
#pragma unroll
    for (int k = 0; k < 4; ++k) sum += v[k].x + v[k].y + v[k].z + v[k].w;
  }
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, l2_read, 4 * sm_count(), 512, 0, static_cast<const float4*>(args->in[0]),
               static_cast<float*>(args->out[0]), kTwin ? (1u << 12) - 1 : (1u << 20) - 1);
}
