/* Few warps because each thread holds 200 values.

   The values are loaded before a long stream and used after it, so they occupy registers all the
   while: eight warps fit an SM. Each waits for its load before asking for the next, and eight loads
   in flight per SM use little of DRAM.

   bound: latency     limiter: long_scoreboard  cause: occupancy-registers
   twin: yes          output: same
   relieves: the values are loaded after the stream, so 64 warps fit an SM
*/
#include "../probe.cuh"

constexpr int kHeld = 200;

__global__ void __maxnreg__(kTwin ? 32 : 255)
occupancy_registers(const float4* in, const float* values, float* out) {
  float held[kTwin ? 1 : kHeld], sum = 0.0f;
#pragma unroll
  for (int k = 0; !kTwin && k < kHeld; ++k) held[k] = values[thread_slot() + k];
  const unsigned step = thread_count();
#pragma unroll 1
  for (unsigned i = thread_slot(); i < 1u << 23; i += step) {
    const float4 v = in[i];
    sum += (v.x + v.y) + (v.z + v.w);
    opaque(sum);
    // Never true; it keeps the compiler from loading the values after the loop.
    if (!kTwin && sum < 0.0f)
#pragma unroll
      for (int k = 0; k < kHeld; ++k) held[k % (kTwin ? 1 : kHeld)] *= sum;
  }
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const float late = kTwin ? values[thread_slot() + k] : held[k % (kTwin ? 1 : kHeld)];
    sum = fmaf(sum, 0.5f, late);
  }
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, occupancy_registers, 32 * sm_count(), 64, 0,
               static_cast<const float4*>(args->in[0]), static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]));
}
