/* Half-precision matrix product without tensor cores.

   Register-tiled so that HFMA2 keeps its pipe busy: as arithmetic on that pipe it is good, but the
   same product is what the tensor cores are for, at eight times the rate, and they stand idle.

   bound: compute     limiter: fp16      cause: tensor-idle
   twin: yes          output: close
   tolerance: 0.05
   relieves: mma.sync does the product
*/
#include <cuda_fp16.h>
#include <mma.h>

#include "../probe.cuh"

constexpr int kM = 2048, kN = 2048, kK = 1024, kTile = 128, kDepth = 16;

// A thread makes 8 rows x 8 columns: four pairs of neighbouring columns.
__device__ void outer_products(const __half (*as)[kTile + 8], const __half (*bs)[kTile + 8], int x,
                               int y, __half2 (&sum)[8][4]) {
#pragma unroll
  for (int k = 0; k < kDepth; ++k) {
    const uint4 u = *reinterpret_cast<const uint4*>(&as[k][y]);
    const uint4 v = *reinterpret_cast<const uint4*>(&bs[k][x]);
    const __half2* us = reinterpret_cast<const __half2*>(&u);
    const __half2* vs = reinterpret_cast<const __half2*>(&v);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const __half2 a = i % 2 ? __high2half2(us[i / 2]) : __low2half2(us[i / 2]);
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[i][j] = __hfma2(a, vs[j], sum[i][j]);
    }
  }
}

__global__ void __launch_bounds__(256) gemm_hfma2(const __half* a, const __half* b, float* out) {
  __shared__ __align__(16) __half as[kDepth][kTile + 8], bs[kDepth][kTile + 8];
  const int t = threadIdx.x, x = t % 16 * 8, y = t / 16 * 8;
  const int row = blockIdx.x / (kN / kTile) * kTile, column = blockIdx.x % (kN / kTile) * kTile;
  __half2 sum[8][4] = {};
  for (int k0 = 0; k0 < kK; k0 += kDepth) {
    const uint4 u = *reinterpret_cast<const uint4*>(a + (row + t / 2) * kK + k0 + t % 2 * 8);
    const __half* us = reinterpret_cast<const __half*>(&u);
#pragma unroll
    for (int i = 0; i < 8; ++i) as[t % 2 * 8 + i][t / 2] = us[i];
    *reinterpret_cast<uint4*>(&bs[t / 16][x]) =
        *reinterpret_cast<const uint4*>(b + (k0 + t / 16) * kN + column + x);
    __syncthreads();
    outer_products(as, bs, x, y, sum);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      *reinterpret_cast<float2*>(out + (row + y + i) * kN + column + x + 2 * j) =
          __half22float2(sum[i][j]);
}

__global__ void __launch_bounds__(256) gemm_mma(const __half* a, const __half* b, float* out) {
  using namespace nvcuda::wmma;
  __shared__ __align__(16) __half as[kTile][kDepth + 8], bs[kDepth][kTile + 8];
  const int t = threadIdx.x, wx = t / 32 % 2 * 64, wy = t / 64 * 32;
  const int row = blockIdx.x / (kN / kTile) * kTile, column = blockIdx.x % (kN / kTile) * kTile;
  fragment<accumulator, 16, 16, 16, float> sum[2][4];
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j) fill_fragment(sum[i][j], 0.0f);
  for (int k0 = 0; k0 < kK; k0 += kDepth) {
    *reinterpret_cast<uint4*>(&as[t / 2][t % 2 * 8]) =
        *reinterpret_cast<const uint4*>(a + (row + t / 2) * kK + k0 + t % 2 * 8);
    *reinterpret_cast<uint4*>(&bs[t / 16][t % 16 * 8]) =
        *reinterpret_cast<const uint4*>(b + (k0 + t / 16) * kN + column + t % 16 * 8);
    __syncthreads();
    fragment<matrix_a, 16, 16, 16, __half, row_major> fa[2];
    fragment<matrix_b, 16, 16, 16, __half, row_major> fb[4];
    for (int i = 0; i < 2; ++i) load_matrix_sync(fa[i], &as[wy + 16 * i][0], kDepth + 8);
    for (int j = 0; j < 4; ++j) load_matrix_sync(fb[j], &bs[0][wx + 16 * j], kTile + 8);
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 4; ++j) mma_sync(sum[i][j], fa[i], fb[j], sum[i][j]);
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      store_matrix_sync(out + (row + wy + 16 * i) * kN + column + wx + 16 * j, sum[i][j], kN,
                        mem_row_major);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  const __half* a = static_cast<const __half*>(args->in[3]);
  return start(args, kTwin ? gemm_mma : gemm_hfma2, kM / kTile * (kN / kTile), 256, 0, a,
               a + kM * kK, static_cast<float*>(args->out[0]));
}
