/* wgmma: four warps multiply 64 rows by N columns out of shared memory, asynchronously (sm_90a).

   A and B are Swizzled slabs of 64 columns (128-byte rows, 1 KiB aligned) that the hardware reads
   itself; A may also be registers, in the layout of mma.sync: warp w of the four holds rows 16 w …
   16 w + 15. The accumulators are 16x8 mma.sync tiles side by side, d[n] the columns 8 n …

     fence    before the first product, and when registers that products use have been written
     commit   closes a group of products
     wait<N>  until at most N groups are running; before that, accumulators are not to be touched
*/
#pragma once
#include "sm90.cuh"

// Where an operand lies: start, distance of its 8-row groups, distance of its slabs (in bytes / 16).
struct Operand {
  uint64_t bits;
  // A slab of 8-row groups from `start`; `slab_bytes` counts for operands wider than one slab.
  __device__ __forceinline__ Operand(const void* start, unsigned slab_bytes)
      : bits((shared_address(start) & 0x3ffffu) >> 4 |
             static_cast<uint64_t>(slab_bytes >> 4) << 16 | static_cast<uint64_t>(1024 >> 4) << 32 |
             uint64_t{1} << 62) {}
  // The same `bytes` further on.
  __device__ __forceinline__ Operand plus(unsigned bytes) const {
    Operand next = *this;
    next.bits += bytes >> 4;
    return next;
  }
};

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// The same, and not before `x` (never negative) is known: ptxas moves a wait up as far as it can, also
// before the arithmetic that was to run beside the products. The sleep is never taken.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait_after(float x) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.lt.f32 p, %0, 0f00000000;\n"
      "@p nanosleep.u32 1;\n"
      "wgmma.wait_group.sync.aligned %1;\n}" ::"f"(x),
      "n"(PENDING)
      : "memory");
}
// Keeps the compiler from moving accesses of accumulators across: products run behind its back.
template <int TILES>
__device__ __forceinline__ void hold(float (&d)[TILES][4]) {
#pragma unroll
  for (int n = 0; n < TILES; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(d[n][i])::"memory");
}
// Barrier `id` (1 … 15) for `threads` threads of the block.
__device__ __forceinline__ void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// Registers of each thread of this warpgroup from now on: all warps of it, and a multiple of 8.
template <int COUNT>
__device__ __forceinline__ void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
#define PROFKIT_ACC(d, n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define PROFKIT_ACC8(d, n)                                                                \
  PROFKIT_ACC(d, n), PROFKIT_ACC(d, n + 1), PROFKIT_ACC(d, n + 2), PROFKIT_ACC(d, n + 3), \
      PROFKIT_ACC(d, n + 4), PROFKIT_ACC(d, n + 5), PROFKIT_ACC(d, n + 6), PROFKIT_ACC(d, n + 7)

// d = a b, or d += a b where `add`: a is 64 x 16 with its columns (k) along slab rows; b has rows n and
// columns k (K in Q K^T).
__device__ __forceinline__ void wgmma(float (&d)[8][4], Operand a, Operand b, int add) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
      "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, p, 1, 1, 0, 0;\n}"
      : PROFKIT_ACC8(d, 0)
      : "l"(a.bits), "l"(b.bits), "r"(add)
      : "memory");
}
__device__ __forceinline__ void wgmma(float (&d)[16][4], Operand a, Operand b, int add) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
      "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "
      "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
      "%62, %63"
      "}, %64, %65, p, 1, 1, 0, 0;\n}"
      : PROFKIT_ACC8(d, 0), PROFKIT_ACC8(d, 8)
      : "l"(a.bits), "l"(b.bits), "r"(add)
      : "memory");
}
// d += a b: a is registers, b has rows k and columns n (V in P V).
__device__ __forceinline__ void wgmma(float (&d)[8][4], const uint32_t (&a)[4], Operand b,
                                      int add) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
      "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"
      : PROFKIT_ACC8(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(add)
      : "memory");
}
__device__ __forceinline__ void wgmma(float (&d)[16][4], const uint32_t (&a)[4], Operand b,
                                      int add) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
      "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "
      "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
      "%62, %63"
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}"
      : PROFKIT_ACC8(d, 0), PROFKIT_ACC8(d, 8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(add)
      : "memory");
}
// d = a b, or d += a b where `add`: a is registers, b has rows n and columns k (K in Q K^T).
__device__ __forceinline__ void wgmma_keys(float (&d)[8][4], const uint32_t (&a)[4], Operand b,
                                           int add) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"
      : PROFKIT_ACC8(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(add)
      : "memory");
}
__device__ __forceinline__ void wgmma_keys(float (&d)[16][4], const uint32_t (&a)[4], Operand b,
                                           int add) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}"
      : PROFKIT_ACC8(d, 0), PROFKIT_ACC8(d, 8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(add)
      : "memory");
}
#undef PROFKIT_ACC8
#undef PROFKIT_ACC
