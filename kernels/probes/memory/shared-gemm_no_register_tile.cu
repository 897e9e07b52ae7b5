/* FP32 matrix product in which every multiply-add reads shared memory.

   32 x 32 tiles, one result per thread: each multiply-add needs a new word of the B tile and a
   quarter of a vector of the A tile, so shared memory is asked for 1.25 passes per instruction that
   the FP32 pipe could retire four of. The pipe starves.

   bound: memory      limiter: shared    cause: shared-bandwidth
   twin: yes          output: same
   relieves: 4 x 4 results per thread use each loaded word four times
*/
#include "../probe.cuh"

constexpr int kM = 2048, kN = 2048, kK = 512;

__global__ void __launch_bounds__(1024) gemm_words(const float* a, const float* b, float* out) {
  __shared__ float as[32][32], bs[32][32];
  const int x = threadIdx.x % 32, y = threadIdx.x / 32;
  const int row = blockIdx.x / (kN / 32) * 32, column = blockIdx.x % (kN / 32) * 32;
  float sum = 0.0f;
  for (int k0 = 0; k0 < kK; k0 += 32) {
    as[y][x] = a[(row + y) * kK + k0 + x];
    bs[y][x] = b[(k0 + y) * kN + column + x];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; ++k) sum = fmaf(as[y][k], bs[k][x], sum);
    __syncthreads();
  }
  out[(row + y) * kN + column + x] = sum;
}

__global__ void __launch_bounds__(256) gemm_tiles(const float* a, const float* b, float* out) {
  __shared__ float as[16][68], bs[16][64];  // as[k][row], 4 words of padding keep 16-byte alignment
  const int x = threadIdx.x % 16 * 4, y = threadIdx.x / 16 * 4;
  const int row = blockIdx.x / (kN / 64) * 64, column = blockIdx.x % (kN / 64) * 64;
  float sum[4][4] = {};
  for (int k0 = 0; k0 < kK; k0 += 16) {
    const int ar = threadIdx.x / 4, ak = threadIdx.x % 4 * 4;
    const float4 av = *reinterpret_cast<const float4*>(a + (row + ar) * kK + k0 + ak);
    as[ak][ar] = av.x, as[ak + 1][ar] = av.y, as[ak + 2][ar] = av.z, as[ak + 3][ar] = av.w;
    const int bk = threadIdx.x / 16;
    *reinterpret_cast<float4*>(&bs[bk][x]) =
        *reinterpret_cast<const float4*>(b + (k0 + bk) * kN + column + x);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      const float4 u = *reinterpret_cast<const float4*>(&as[k][y]);
      const float4 v = *reinterpret_cast<const float4*>(&bs[k][x]);
      const float us[4] = {u.x, u.y, u.z, u.w}, vs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(us[i], vs[j], sum[i][j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    *reinterpret_cast<float4*>(out + (row + y + i) * kN + column + x) = {sum[i][0], sum[i][1],
                                                                        sum[i][2], sum[i][3]};
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  const float* a = static_cast<const float*>(args->in[0]);
  const int tile = kTwin ? 64 : 32;
  return start(args, kTwin ? gemm_tiles : gemm_words, kM / tile * (kN / tile), kTwin ? 256 : 1024,
               0, a, a + kM * kK, static_cast<float*>(args->out[0]));
}
