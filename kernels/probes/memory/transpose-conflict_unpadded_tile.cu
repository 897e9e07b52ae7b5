/* Transpose through a shared-memory tile of 32 x 32 words without padding.

   Global loads and stores are coalesced. Reading the tile down a column puts all 32 lanes on one
   bank: 32 passes instead of one, 1024 cycles per tile and SM, twice what DRAM needs for it.

   bound: memory      limiter: shared    cause: shared-bank-conflicts
   twin: yes          output: same
   relieves: one word of padding per row spreads the column over all banks
*/
#include "../probe.cuh"

constexpr int kSide = 8192;

__global__ void __launch_bounds__(256) transpose_conflict(const float* in, float* out) {
  const int column = blockIdx.x % (kSide / 32) * 32, row = blockIdx.x / (kSide / 32) * 32;
  const int x = threadIdx.x % 32, y = threadIdx.x / 32;
  __shared__ float tile[32][kTwin ? 33 : 32];
#pragma unroll
  for (int k = 0; k < 32; k += 8) tile[y + k][x] = in[(row + y + k) * kSide + column + x];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 32; k += 8) out[(column + y + k) * kSide + row + x] = tile[x][y + k];
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, transpose_conflict, kSide / 32 * (kSide / 32), 256, 0,
               static_cast<const float*>(args->in[0]), static_cast<float*>(args->out[0]));
}
