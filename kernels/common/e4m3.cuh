/* e4m3 codes: packed from floats, transposed in registers, multiplied by wgmma (sm_90a).

   wgmma takes codes with k along the rows of both operands only: K as it is in Q K^T, V transposed in
   P V. A row of 128 codes is a row of 128 bytes, so tiles are slabs of wgmma.cuh, and a product takes 32 of
   a row where halves take 16. Registers of the left operand hold four codes: lane 4 g + t has row g (and
   g+8) at k = 4t … 4t+3 and 16 + 4t … 16 + 4t+3, where accumulators have columns 2t, 2t+1 of each eight.
   No lane has to give another anything if keys change places, in P and V alike: k = 16 h + 4 t + j stands
   for key 16 h + 8 (j / 2) + 2 t + j % 2 of each 32.
*/
#pragma once
#include "wgmma.cuh"

// Four floats as codes, the first lowest; what is beyond 448 becomes 448.
__device__ __forceinline__ uint32_t pack_e4m3(float a, float b, float c, float d) {
  uint32_t codes;
  asm("{\n.reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n}"
      : "=r"(codes)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return codes;
}
// Bytes of two words, of which SELECT names four, the lowest first.
template <unsigned SELECT>
__device__ __forceinline__ uint32_t bytes_of(uint32_t low, uint32_t high) {
  return __byte_perm(low, high, SELECT);
}
// The counterpart of ldmatrix: lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void stmatrix(void* row, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   shared_address(row)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

#define PROFKIT_ACC(d, n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define PROFKIT_ACC8(d, n)                                                                \
  PROFKIT_ACC(d, n), PROFKIT_ACC(d, n + 1), PROFKIT_ACC(d, n + 2), PROFKIT_ACC(d, n + 3), \
      PROFKIT_ACC(d, n + 4), PROFKIT_ACC(d, n + 5), PROFKIT_ACC(d, n + 6), PROFKIT_ACC(d, n + 7)

// d = a b, or d += a b where `add`: 32 codes of each row of a and of b.
__device__ __forceinline__ void wgmma_e4m3(float (&d)[8][4], Operand a, Operand b, int add) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
      "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, p, 1, 1;\n}"
      : PROFKIT_ACC8(d, 0)
      : "l"(a.bits), "l"(b.bits), "r"(add)
      : "memory");
}
__device__ __forceinline__ void wgmma_e4m3(float (&d)[16][4], Operand a, Operand b, int add) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
      "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "
      "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
      "%62, %63"
      "}, %64, %65, p, 1, 1;\n}"
      : PROFKIT_ACC8(d, 0), PROFKIT_ACC8(d, 8)
      : "l"(a.bits), "l"(b.bits), "r"(add)
      : "memory");
}
// The same with the 64 rows of a in registers, sixteen a warp.
__device__ __forceinline__ void wgmma_e4m3(float (&d)[16][4], const uint32_t (&a)[4], Operand b,
                                           int add) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
      "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "
      "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
      "%62, %63"
      "}, {%64, %65, %66, %67}, %68, p, 1, 1;\n}"
      : PROFKIT_ACC8(d, 0), PROFKIT_ACC8(d, 8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(add)
      : "memory");
}
#undef PROFKIT_ACC8
#undef PROFKIT_ACC
