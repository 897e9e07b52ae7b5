/* K and V are repeated for every query head, then attention as ever.

   What repeat_interleave before a kernel without groups does: k and v are written eight times over and
   read back, so the cache and DRAM see nine times their bytes. The attention behind it is stage3b of
   the problem attention, unchanged.

   arch: 80+      budget: regs=255 smem=80K spills=0 stack=0
*/
#include "heads.cuh"
#include "../common/pool.cuh"
#define profkit_launch attend_equal_heads
#include "../attention/stages/stage3b_register_softmax.cu"
#undef profkit_launch

// Eight copies of each head; x and y in units of 16 bytes, `head` units a head.
__global__ void __launch_bounds__(256) repeat_heads(const uint4* x, uint4* y, long long head) {
  const uint4* from = x + blockIdx.y * head;
  uint4* to = y + blockIdx.y * GROUP * head;
  for (long long i = blockIdx.x * 256ll + threadIdx.x; i < head; i += gridDim.x * 256ll) {
    uint4 chunk = from[i];
    for (int g = 0; g < GROUP; ++g) to[g * head + i] = chunk;
  }
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  const long long* n = args->size;
  if (!of_group(args)) return cudaErrorNotSupported;
  long long heads = n[0] * n[4], head = n[2] * n[3] / 8, whole = heads * GROUP * head;
  if (heads > 65535 || n[3] % 8) return cudaErrorNotSupported;
  Workspace space(2 * whole * sizeof(uint4) + 16, args->stream);
  if (space.error) return space.error;
  ProfkitArgs expanded = *args;
  for (int i = 1; i < 3 && whole; ++i) {
    uint4* to = static_cast<uint4*>(space.data) + (i - 1) * whole;
    unsigned blocks = static_cast<unsigned>(head < 256 * 64 ? (head + 255) / 256 : 64);
    if (int e = launch<repeat_heads>({dim3(blocks, static_cast<unsigned>(heads)), 256, 0}, args->stream,
                                     static_cast<const uint4*>(args->in[i]), to, head))
      return e;
    expanded.in[i] = to;
  }
  return attend_equal_heads(&expanded);
}
