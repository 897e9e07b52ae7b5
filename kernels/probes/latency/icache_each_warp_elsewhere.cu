/* More code than the instruction caches hold, each warp in another part of it.

   32 straight pieces of 512 multiply-adds with a constant each: 256 KiB of instructions, twice the
   SM's instruction cache, and the warps go round them from 32 different starting points. Schedulers
   stand still with warps that have no instruction.

   bound: latency     limiter: no_instruction  cause: instruction-cache
   twin: yes          output: finite
   relieves: all warps go round one piece, 8 KiB of instructions
*/
#include "../probe.cuh"

constexpr int kPieces = 32, kLength = 512;

template <int kPiece>
__device__ __forceinline__ void straight(float (&sum)[4], float x) {
#pragma unroll
  for (int i = 0; i < kLength; ++i)
    sum[i % 4] = fmaf(x, 1.0f + (kPiece * kLength + i) * 0x1p-16f, sum[i % 4]);
}

#define PIECE(n) case n: straight<n>(sum, x); break;
#define PIECES(n) PIECE(n) PIECE(n + 1) PIECE(n + 2) PIECE(n + 3)

__global__ void __launch_bounds__(512) icache(const float* in, float* out, int which) {
  const float x = in[thread_slot()];
  float sum[4] = {};
  int piece = (blockIdx.x * 16 + threadIdx.x / 32) % kPieces;
  for (int i = 0; i < kPieces; ++i) {
    switch (piece & which) {
      PIECES(0) PIECES(4) PIECES(8) PIECES(12) PIECES(16) PIECES(20) PIECES(24) PIECES(28)
    }
    piece = (piece + 1) % kPieces;
  }
  out[thread_slot()] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, icache, 4 * sm_count(), 512, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), kTwin ? 0 : kPieces - 1);
}
