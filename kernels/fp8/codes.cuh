/* FP8 attention's inputs, and V transposed by a launch of its own.

   wgmma wants codes of V with the keys along the rows, and V has them down the columns: fp16's wgmma
   reads such an operand transposed, e4m3's cannot. A first launch writes V once more, (heads, 128, keys),
   keys in the order of e4m3.cuh within each 32.
*/
#pragma once
#include "../common/attention.cuh"
#include "../common/e4m3.cuh"
#include "../common/pool.cuh"
#include "../common/tma.cuh"

namespace fp8 {

constexpr int D = 128;  // head size, and bytes of a row of q, k and v

// Attention's own struct, for what is the same: its pointers are to codes, two a half.
struct Input : Attention {
  const float* scales;  // of q, k and v, on the device
};

using Rows64 = Slabs<64, 64>;  // 64 rows of 128 bytes
using Rows128 = Slabs<128, 64>;

// 32 keys from `keys` on by 16 bytes, chunk `chunk` of their rows, transposed by a warp: ldmatrix does so
// with pairs of bytes, and the pairs' halves are sorted into rows 2 g and 2 g + 1.
__device__ __forceinline__ void turn(Rows128& to, const Rows128& from, int keys, int chunk, int lane) {
  uint32_t pairs[4], rows[4];
  ldmatrix_trans(pairs, from.at(keys + lane, 8 * chunk));
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    rows[h] = bytes_of<0x6420>(pairs[2 * h], pairs[2 * h + 1]);
    rows[2 + h] = bytes_of<0x7531>(pairs[2 * h], pairs[2 * h + 1]);
  }
  const int row = 16 * chunk + 2 * (lane % 8) + lane / 16;
  stmatrix(to.slab[0].at(row, keys / 2 + lane / 8 % 2 * 8), rows);
}

constexpr int TURNING = 128;  // threads

// A block 128 keys, by way of shared memory: whole lines are read and written.
struct TurnLines {
  static constexpr size_t SHARED = 2 * sizeof(Rows128);
  static __device__ __forceinline__ void run(const half* v, uint4* to, int length, int padded) {
    auto& m = shared_memory<Rows128[2]>();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * 128;
    v += static_cast<size_t>(blockIdx.y) * length * (D / 2);
    load_rows<TURNING>(m[0].slab[0], v, first, length);
    __syncthreads();
#pragma unroll
    for (int chunk = 0; chunk < D / 16; ++chunk) turn(m[1], m[0], 32 * warp, chunk, lane);
    __syncthreads();
    to += (static_cast<size_t>(blockIdx.y) * D * padded + first) / 16;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = (threadIdx.x + TURNING * i) / 8, chunk = threadIdx.x % 8;
      if (first + 16 * chunk < padded)
        to[static_cast<size_t>(row) * padded / 16 + chunk] =
            *reinterpret_cast<const uint4*>(m[1].at(row, 8 * chunk));
    }
  }
};

// A warp 32 keys, in registers: a lane reads four columns, and writes 32 bytes of four rows.
struct TurnWords {
  static constexpr size_t SHARED = 0;
  static __device__ __forceinline__ void run(const half* v, uint4* to, int length, int padded) {
    const int lane = threadIdx.x % 32, first = (blockIdx.x * 4 + threadIdx.x / 32) * 32;
    if (first >= padded) return;
    const size_t head = blockIdx.y;
    const auto* words = reinterpret_cast<const uint32_t*>(v) + head * length * (D / 4) + lane;
    uint32_t key[32], out[8][4];
#pragma unroll
    for (int i = 0; i < 32; ++i)
      key[i] = first + i < length ? words[static_cast<size_t>(first + i) * (D / 4)] : 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int k = i / 4 * 16 + i % 4 * 2;
      uint32_t low = bytes_of<0x5140>(key[k], key[k + 1]), high = bytes_of<0x7362>(key[k], key[k + 1]);
      uint32_t low8 = bytes_of<0x5140>(key[k + 8], key[k + 9]);
      uint32_t high8 = bytes_of<0x7362>(key[k + 8], key[k + 9]);
      out[i][0] = bytes_of<0x5410>(low, low8), out[i][1] = bytes_of<0x7632>(low, low8);
      out[i][2] = bytes_of<0x5410>(high, high8), out[i][3] = bytes_of<0x7632>(high, high8);
    }
    to += ((head * D + 4 * lane) * padded + first) / 16;
#pragma unroll
    for (int row = 0; row < 4; ++row)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        to[static_cast<size_t>(row) * padded / 16 + h] = make_uint4(
            out[4 * h][row], out[4 * h + 1][row], out[4 * h + 2][row], out[4 * h + 3][row]);
  }
};

template <class TURN>
__global__ void __launch_bounds__(TURNING) transpose_v(const half* v, uint4* to, int length, int padded) {
  TURN::run(v, to, length, padded);
}

// Checks args and calls f(input).
template <class F>
int on_codes(const ProfkitArgs* args, F f) {
  if (args->scale <= 0.0f) return cudaErrorNotSupported;
  return on_head_dim<D>(args, [&](const Attention& a, auto) {
    Input input;
    static_cast<Attention&>(input) = a;
    input.scales = static_cast<const float*>(args->in[3]);
    return int{f(input)};
  });
}

}  // namespace fp8
