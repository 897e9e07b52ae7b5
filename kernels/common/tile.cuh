/* Tiles in shared memory: where an element lies, which banks that costs, and how rows get there. */
#pragma once
#include "attention.cuh"

// A layout says where byte `byte` of row `row` lies, for rows of BYTES bytes. The 16-byte chunk is
// the unit: ldmatrix, cp.async and 16-byte loads take one chunk a thread and row.
template <int BYTES>
struct Plain {  // rows one after the other: with 128-byte rows all rows share their banks
  static constexpr int SIZE = BYTES;
  __host__ __device__ static constexpr int at(int row, int byte) { return row * BYTES + byte; }
};
template <int BYTES>
struct Padded {  // 16 bytes between rows: eight rows start in eight different bank groups
  static constexpr int SIZE = BYTES + 16;
  __host__ __device__ static constexpr int at(int row, int byte) { return row * SIZE + byte; }
};
template <int BYTES>
struct Swizzled {  // chunk XOR row: eight rows of a column spread over all 32 banks, no padding
  static constexpr int SIZE = BYTES, CHUNKS = BYTES / 16;
  static constexpr int ROWS_PER_LINE = BYTES < 128 ? 128 / BYTES : 1;  // a line is all 32 banks
  static constexpr int MASK = CHUNKS < 8 ? CHUNKS - 1 : 7;
  static_assert((CHUNKS & (CHUNKS - 1)) == 0, "XOR stays inside the row for powers of two only");
  __host__ __device__ static constexpr int at(int row, int byte) {
    return row * BYTES + (byte ^ ((row / ROWS_PER_LINE & MASK) * 16));
  }
};
template <int BYTES>
struct RowXor {  // row XOR chunk: moves chunks between rows, and leaves each in its banks
  static constexpr int SIZE = BYTES;
  __host__ __device__ static constexpr int at(int row, int byte) {
    return (row ^ (byte / 16 & 3)) * BYTES + byte;
  }
};

// Wavefronts for one 8x8 matrix of ldmatrix: 8 rows, one chunk each, 8 groups of 4 banks. 1 is the
// best, 8 the worst.
template <class LAYOUT>
__host__ __device__ constexpr int ldmatrix_wavefronts(int first_row, int chunk) {
  int hits[8] = {}, worst = 0;
  for (int i = 0; i < 8; ++i) {
    int group = LAYOUT::at(first_row + i, chunk * 16) / 16 % 8;
    if (++hits[group] > worst) worst = hits[group];
  }
  return worst;
}
static_assert(ldmatrix_wavefronts<Plain<128>>(0, 3) == 8, "");
static_assert(ldmatrix_wavefronts<RowXor<128>>(0, 3) == 8, "");
static_assert(ldmatrix_wavefronts<Padded<128>>(0, 3) == 1, "");
static_assert(ldmatrix_wavefronts<Swizzled<128>>(0, 3) == 1, "");
static_assert(ldmatrix_wavefronts<Plain<64>>(0, 3) == 4, "");
static_assert(ldmatrix_wavefronts<Swizzled<64>>(0, 3) == 1, "");

// ROWS x COLS elements of type T. Elements of one chunk are neighbours; nothing else is promised.
template <class T, int ROWS, int COLS, template <int> class LAYOUT = Plain>
struct alignas(128) Tile {
  using Layout = LAYOUT<COLS* static_cast<int>(sizeof(T))>;
  static constexpr int CHUNK = 16 / static_cast<int>(sizeof(T)), CHUNKS = COLS / CHUNK;
  static constexpr int STRIDE = Layout::SIZE / static_cast<int>(sizeof(T));  // elements a row
  unsigned char bytes[ROWS * Layout::SIZE];

  __device__ __forceinline__ T* at(int row, int col) {
    return reinterpret_cast<T*>(bytes + Layout::at(row, col * static_cast<int>(sizeof(T))));
  }
  __device__ __forceinline__ const T* at(int row, int col) const {
    return reinterpret_cast<const T*>(bytes + Layout::at(row, col * static_cast<int>(sizeof(T))));
  }
};

// Threads take elements or chunks in turn, thread t those with index t, t + THREADS, …, so that a tile
// which the threads do not divide is still loaded whole. Rows from `length` on are zero: what is
// multiplied by a zero probability must not be NaN.

// One element at a time, the way nobody should.
template <int THREADS, int ROWS, int COLS, template <int> class L>
__device__ __forceinline__ void load_elements(Tile<half, ROWS, COLS, L>& tile, const half* from,
                                              int first, int length) {
  for (int i = threadIdx.x; i < ROWS * COLS; i += THREADS) {
    int row = i / COLS, col = i % COLS;
    half x = __float2half(0.0f);
    if (first + row < length) x = from[static_cast<size_t>(first + row) * COLS + col];
    *tile.at(row, col) = x;
  }
}

// 16 bytes at a time, through registers.
template <int THREADS, int ROWS, int COLS, template <int> class L>
__device__ __forceinline__ void load_rows(Tile<half, ROWS, COLS, L>& tile, const half* from,
                                          int first, int length) {
  constexpr int ALL = ROWS * COLS / 8;
#pragma unroll
  for (int j = 0; j < ceil_div(ALL, THREADS); ++j) {
    int i = threadIdx.x + j * THREADS, row = i / (COLS / 8), col = i % (COLS / 8) * 8;
    if (ALL % THREADS != 0 && i >= ALL) break;
    uint4 x = make_uint4(0, 0, 0, 0);
    if (first + row < length)
      x = *reinterpret_cast<const uint4*>(from + static_cast<size_t>(first + row) * COLS + col);
    *reinterpret_cast<uint4*>(tile.at(row, col)) = x;
  }
}
