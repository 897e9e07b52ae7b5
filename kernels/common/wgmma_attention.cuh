/* Q K^T and P V of a warpgroup: 64 queries against slabs that TMA filled. */
#pragma once
#include "splitk.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

namespace warpgroup {

// Starts s = q k^T for the 64 rows of q from `row` (a multiple of 64) and all KEYS rows of k.
template <int KEYS, int D, int ROWS>
__device__ __forceinline__ void start_scores(float (&s)[KEYS / 8][4], const Slabs<ROWS, D>& q,
                                             int row, const Slabs<KEYS, D>& k) {
#pragma unroll
  for (int d = 0; d < D; d += 16)
    wgmma(s, Operand(q.slab[d / 64].at(row, 0), 0).plus(d % 64 * 2),
          Operand(&k.slab[d / 64], 0).plus(d % 64 * 2), d > 0);
}

// The same with the 64 rows in registers, sixteen a warp.
template <int KEYS, int D>
__device__ __forceinline__ void start_scores(float (&s)[KEYS / 8][4], const uint32_t (&q)[D / 16][4],
                                             const Slabs<KEYS, D>& k) {
#pragma unroll
  for (int d = 0; d < D; d += 16)
    wgmma_keys(s, q[d / 16], Operand(&k.slab[d / 64], 0).plus(d % 64 * 2), d > 0);
}

// Probabilities as the left operand of P V: registers of mma.sync, 16 keys each.
template <int KEYS>
__device__ __forceinline__ void pack_probabilities(uint32_t (&p)[KEYS / 16][4],
                                                   const float (&s)[KEYS / 8][4]) {
#pragma unroll
  for (int n = 0; n < KEYS / 16; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      p[n][i] = pack(s[2 * n + i / 2][i % 2 * 2], s[2 * n + i / 2][i % 2 * 2 + 1]);
}

// Starts out += p v for all KEYS rows of v.
template <int KEYS, int D>
__device__ __forceinline__ void start_pv(float (&out)[D / 8][4], const uint32_t (&p)[KEYS / 16][4],
                                         const Slabs<KEYS, D>& v) {
#pragma unroll
  for (int n = 0; n < KEYS / 16; ++n)
    wgmma(out, p[n], Operand(&v.slab[0], sizeof(v.slab[0])).plus(n * 16 * 128), 1);
}

// A negative scale moves its sign into Q, in shared memory, by `threads` threads with this number.
// Ends with a fence; a barrier has to follow before wgmma reads Q.
template <int ROWS, int D>
__device__ __forceinline__ void apply_sign(Slabs<ROWS, D>& q, uint32_t sign, int thread,
                                           int threads) {
  auto* words = reinterpret_cast<uint32_t*>(q.slab);
  for (int i = thread; i < Slabs<ROWS, D>::BYTES / 4; i += threads) words[i] ^= sign;
  fence_for_async();
}

}  // namespace warpgroup
