/* Hopper's PTX: mbarriers, TMA, clusters and dependent launches, one function an instruction (sm_90).

   A barrier is 8 bytes of shared memory. It completes a phase when as many threads have arrived as it
   was made for and all bytes that were announced have come. wait(b, p) returns once the phase of
   parity p is complete: a fresh barrier is waited for with parity 0, then 1, then 0 again.
*/
#pragma once
#include <cuda.h>

#include "ptx.cuh"

using Barrier = uint64_t;

__device__ __forceinline__ void barrier_init(Barrier* b, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals)
               : "memory");
}
// After initializing, by the same thread: makes the barriers known to TMA and to the cluster.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives, and announces `bytes` that TMA will bring.
__device__ __forceinline__ void barrier_expect(Barrier* b, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_arrive(Barrier* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
__device__ __forceinline__ void barrier_wait(Barrier* b, unsigned parity) {
  unsigned done = 0;
  while (!done)
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(shared_address(b)), "r"(parity)
        : "memory");
}

// Every thread of every block of the cluster arrives, then waits for the others. What was written
// before the arrival is seen after the wait, in the whole cluster: that is a MEMBAR.ALL.GPU, the
// better part of a microsecond.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
// The same without that promise: for "everybody has started" and "everybody is done".
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Starts a copy of `bytes` (16-byte aligned, a multiple of 16) from this block's shared memory to the
// same-named place in block `rank` of the cluster; the bytes count on that block's barrier `b`.
__device__ __forceinline__ void copy_to_block(unsigned rank, void* to, const void* from,
                                              unsigned bytes, Barrier* b) {
  unsigned there, barrier;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(to)), "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(shared_address(b)), "r"(rank));
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(there),
      "r"(shared_address(from)), "r"(bytes), "r"(barrier)
      : "memory");
}
// Starts a store of x to the same-named place in block `rank` of the cluster, which counts 16 bytes on
// its barrier of the name `b`.
__device__ __forceinline__ void store_to_block(unsigned rank, float4* to, float4 x, Barrier* b) {
  unsigned there, barrier;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(to)), "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(shared_address(b)), "r"(rank));
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
          there),
      "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(barrier)
      : "memory");
}
// Ordinary writes to shared memory before this are seen by wgmma, TMA and copies after a barrier.
__device__ __forceinline__ void fence_for_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Waits until the kernels that this launch overlaps with have ended and their writes are visible.
__device__ __forceinline__ void wait_for_earlier_kernels() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
// Lets the next kernel in the stream start, if it was launched to overlap, once all blocks said so.
__device__ __forceinline__ void let_next_kernel_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// Starts the copy of a box at (col, row, matrix) to shared memory; its bytes count on `b`.
__device__ __forceinline__ void tma_load(void* to, const CUtensorMap* map, Barrier* b, int col,
                                         int row, int matrix) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(b)), "r"(col), "r"(row), "r"(matrix)
      : "memory");
}
// The same to the same place in every block of the cluster whose bit is set in `blocks`; each has
// its bytes counted on its own barrier at the place of `b`.
__device__ __forceinline__ void tma_multicast(void* to, const CUtensorMap* map, Barrier* b, int col,
                                              int row, int matrix, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(b)), "h"(blocks), "r"(col), "r"(row), "r"(matrix)
      : "memory");
}
