/* mma.sync on half precision, operands in registers.

   Eight independent accumulators per warp and 16 warps per SM: the tensor pipe always has the next
   16x8x16 product. On 9.0 this older instruction cannot use the whole of the tensor cores (wgmma
   can), but it is what keeps the pipe busy.

   bound: compute     limiter: tensor    cause: tensor-pipe
   twin: no           output: finite
*/
#include "../probe.cuh"

__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__global__ void __launch_bounds__(256) tensor_mma(const unsigned* in, float* out) {
  unsigned a[4], b[2];
  float d[8][4] = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) a[k] = in[thread_slot() * 8 + k];
#pragma unroll
  for (int k = 0; k < 2; ++k) b[k] = in[thread_slot() * 8 + 4 + k];
  for (int round = 0; round < 1200; ++round) {
#pragma unroll
    for (int k = 0; k < 8; ++k) mma(d[k], a, b);
  }
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 8; ++k) sum += (d[k][0] + d[k][1]) + (d[k][2] + d[k][3]);
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, tensor_mma, 2 * sm_count(), 256, 0, static_cast<const unsigned*>(args->in[3]),
               static_cast<float*>(args->out[0]));
}
