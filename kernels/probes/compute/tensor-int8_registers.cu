/* mma.sync on 8-bit integers, operands in registers.

   Integer matrix products on the tensor pipe: no floating point at all, and the integer pipes idle.

   bound: compute     limiter: tensor    cause: tensor-pipe
   twin: no           output: finite
*/
#include "../probe.cuh"

__device__ __forceinline__ void mma(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__global__ void __launch_bounds__(256) tensor_int8(const unsigned* in, float* out) {
  unsigned a[4], b[2];
  int d[8][4] = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) a[k] = in[thread_slot() * 8 + k];
#pragma unroll
  for (int k = 0; k < 2; ++k) b[k] = in[thread_slot() * 8 + 4 + k];
  for (int round = 0; round < 1200; ++round) {
#pragma unroll
    for (int k = 0; k < 8; ++k) mma(d[k], a, b);
  }
  int sum = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) sum ^= (d[k][0] ^ d[k][1]) ^ (d[k][2] ^ d[k][3]);
  out[thread_slot()] = static_cast<float>(sum);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, tensor_int8, 2 * sm_count(), 256, 0, static_cast<const unsigned*>(args->in[1]),
               static_cast<float*>(args->out[0]));
}
