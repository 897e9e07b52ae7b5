/* STREAM triad: a = b + s * c over 512 MiB arrays.

   Two reads and a write for one fused multiply-add: 1/6 FLOP per byte, some 80 times below the
   FP32 ridge. The additions change nothing; DRAM is full.

   bound: memory      limiter: dram      cause: dram-bandwidth
   twin: no           output: finite
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(512)
    dram_triad(const float4* b, const float4* c, float4* a, float s) {
  for (unsigned i = thread_slot(); i < kBufferWords / 8; i += thread_count()) {
    const float4 x = b[i], y = c[i];
    a[i] = {fmaf(s, y.x, x.x), fmaf(s, y.y, x.y), fmaf(s, y.z, x.z), fmaf(s, y.w, x.w)};
  }
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  const float4* in = static_cast<const float4*>(args->in[0]);
  return start(args, dram_triad, 4 * sm_count(), 512, 0, in, in + kBufferWords / 8,
               static_cast<float4*>(args->out[0]), args->scale);
}
