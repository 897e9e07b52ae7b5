/* Read one gibibyte once.

   Every thread keeps four 16-byte loads in flight and adds what comes: one addition per four bytes
   is nothing beside the load, every sector is used whole and none is used twice. Only the DRAM
   interface can be what is full.

   bound: memory      limiter: dram      cause: dram-bandwidth
   twin: yes          output: finite
   relieves: the same loads go round in 16 MiB, which the L2 holds
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(512) dram_read(const float4* in, float* out, unsigned mask) {
  float sum = 0.0f;
  const unsigned step = thread_count();
  for (unsigned i = thread_slot(); i < kBufferWords / 4; i += 4 * step) {
    float4 v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = i + k * step < kBufferWords / 4
        ? in[(i + k * step) & mask] : float4{};
#pragma unroll
    for (int k = 0; k < 4; ++k) sum += v[k].x + v[k].y + v[k].z + v[k].w;
  }
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, dram_read, 4 * sm_count(), 512, 0, static_cast<const float4*>(args->in[0]),
               static_cast<float*>(args->out[0]), kTwin ? (1u << 20) - 1 : ~0u);
}
