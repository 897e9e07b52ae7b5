/* Sparse matrix times vector with one thread per row (CSR, 32 non-zeros a row, banded).

   Neighbouring threads walk different rows, 128 bytes apart: one warp's load touches 32 lines. What
   is left of a line should be used by the next steps, but 64 warps of such lines do not fit the L1.
   The L1 has a line to look up for each lane, and that is full; L2 and DRAM see the refetches.

   bound: memory      limiter: l1        cause: uncoalesced-access
   twin: yes          output: close
   relieves: one warp per row reads a row's values side by side
*/
#include "../probe.cuh"

constexpr unsigned kRows = 1u << 20, kPerRow = 32;

__device__ __forceinline__ float term(const float* value, const unsigned* index, const float* x,
                                      unsigned row, unsigned k) {
  const unsigned column = (row + (index[row * kPerRow + k] & 63u)) & (kRows - 1);
  return value[row * kPerRow + k] * x[column];
}

__global__ void __launch_bounds__(256)
    spmv(const float* value, const unsigned* index, const float* x, float* out) {
  if constexpr (kTwin) {
    const unsigned lane = threadIdx.x % 32;
    for (unsigned row = thread_slot() / 32; row < kRows; row += thread_count() / 32) {
      float sum = term(value, index, x, row, lane);
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
      if (lane == 0) out[row] = sum;
    }
  } else {
    const unsigned row = thread_slot();
    float sum = 0.0f;
#pragma unroll 4
    for (unsigned k = 0; k < kPerRow; ++k) sum += term(value, index, x, row, k);
    out[row] = sum;
  }
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  const float* in = static_cast<const float*>(args->in[0]);
  return start(args, spmv, kTwin ? 8 * sm_count() : kRows / 256, 256, 0, in,
               static_cast<const unsigned*>(args->in[1]), in + kRows * kPerRow,
               static_cast<float*>(args->out[0]));
}
