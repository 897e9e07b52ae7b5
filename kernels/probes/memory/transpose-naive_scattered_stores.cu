/* Transpose an 8192 x 8192 matrix with one thread per element.

   Loads run along rows; stores run down columns, so each warp's store touches 32 sectors with four
   bytes each. The L2 gets eight times the write transactions that the data needs.

   bound: memory      limiter: l2        cause: uncoalesced-access
   twin: yes          output: same
   relieves: a padded shared-memory tile turns the columns into rows before the store
*/
#include "../probe.cuh"

constexpr int kSide = 8192;

__global__ void __launch_bounds__(256) transpose_naive(const float* in, float* out) {
  const int column = blockIdx.x % (kSide / 32) * 32, row = blockIdx.x / (kSide / 32) * 32;
  const int x = threadIdx.x % 32, y = threadIdx.x / 32;
  if constexpr (kTwin) {
    __shared__ float tile[32][33];
#pragma unroll
    for (int k = 0; k < 32; k += 8) tile[y + k][x] = in[(row + y + k) * kSide + column + x];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; k += 8) out[(column + y + k) * kSide + row + x] = tile[x][y + k];
  } else {
#pragma unroll
    for (int k = 0; k < 32; k += 8)
      out[(column + x) * kSide + row + y + k] = in[(row + y + k) * kSide + column + x];
  }
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, transpose_naive, kSide / 32 * (kSide / 32), 256, 0,
               static_cast<const float*>(args->in[0]), static_cast<float*>(args->out[0]));
}
