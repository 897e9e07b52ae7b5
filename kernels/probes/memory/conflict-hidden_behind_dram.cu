/* Copy through shared memory with 4-way bank conflicts that cost nothing.

   Each element passes through shared memory once, four passes instead of one: 64 cycles of the
   shared pipe per 16 warps while DRAM takes several times that for their bytes. The trap: a tool
   that ranks by conflicts alone sends people to swizzle a kernel which waits for DRAM.

   bound: memory      limiter: dram      cause: dram-bandwidth
   twin: no           output: finite
*/
#include "../probe.cuh"

__global__ void __launch_bounds__(512) conflict_hidden(const float* in, float* out) {
  __shared__ float stage[512 * 4];
  const unsigned step = thread_count(), words = kBufferWords / 2;
  float* mine = stage + threadIdx.x * 4;  // lanes 16 bytes apart: 4 lanes on each bank
  for (unsigned i = thread_slot(); i < words; i += 4 * step) {
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = i + k * step < words ? in[i + k * step] : 0.0f;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      *mine = v[k];
      opaque(v[k]);
      v[k] = load_shared_again(shared_address(mine));
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) if (i + k * step < words) out[i + k * step] = v[k];
  }
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, conflict_hidden, 4 * sm_count(), 512, 0,
               static_cast<const float*>(args->in[0]), static_cast<float*>(args->out[0]));
}
