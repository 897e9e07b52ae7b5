/* The PTX that CUDA C++ has no words for, one function an instruction, sm_80 and up.

   Nothing else holds inline assembly but sm90.cuh: tests replace these two headers by host code and
   run every kernel on the CPU.
*/
#pragma once
#include <cstdint>
#include <cuda_fp16.h>

__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// 2^x: one MUFU.EX2. exp2_approx(-inf) = 0.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

enum class Cache { L1_AND_L2, L2_ONLY };

// Starts a copy of BYTES from global to shared memory, or of BYTES zeros where `valid` is false
// (`from` is then not read, but must still be an address of the tensor). No register holds the data.
template <int BYTES, Cache CACHE>
__device__ __forceinline__ void cp_async(void* to, const void* from, bool valid) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
  static_assert(CACHE == Cache::L1_AND_L2 || BYTES == 16, "cp.async.cg copies 16 bytes only");
  int bytes = valid ? BYTES : 0;
  if constexpr (CACHE == Cache::L2_ONLY)
    asm volatile("cp.async.cg.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)),
                 "l"(from), "n"(BYTES), "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)),
                 "l"(from), "n"(BYTES), "r"(bytes)
                 : "memory");
}

// Closes this thread's group: every copy it started since the last one. A group may be empty.
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most PENDING of this thread's newest groups are still on their way. What other
// threads copied is there after the next barrier only.
template <int PENDING>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Four 8x8 matrices of halves. Lane l gives the address of row l%8 of matrix l/8 (16 bytes there),
// and gets in r[i] elements (l/4, 2(l%4)) and (l/4, 2(l%4)+1) of matrix i.
__device__ __forceinline__ void ldmatrix(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// The same, each matrix transposed: r[i] holds elements (2(l%4), l/4) and (2(l%4)+1, l/4).
__device__ __forceinline__ void ldmatrix_trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// c += a b for one m16n8k16 product; mma.cuh has the layouts.
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same for e4m3 codes, m16n8k32 (sm_89 and up).
__device__ __forceinline__ void mma_e4m3(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
