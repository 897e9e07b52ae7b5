// What the shared headers compute, printed for test_layouts.py.
#include <cstdio>

#include "cp_async.cuh"
#include "mma.cuh"
#include "splitk.cuh"

namespace {

template <template <int> class L, int BYTES>
void wavefronts(const char* name) {
  int worst = 0;
  for (int chunk = 0; chunk < BYTES / 16; ++chunk) {
    int w = ldmatrix_wavefronts<L<BYTES>>(8, chunk);
    if (w > worst) worst = w;
  }
  printf("wavefronts %s %d %d\n", name, BYTES, worst);
}

// Whether a layout gives every byte of ROWS rows a place of its own within ROWS * SIZE bytes.
template <template <int> class L, int BYTES>
void places(const char* name) {
  constexpr int ROWS = 16;
  bool taken[ROWS * L<BYTES>::SIZE] = {};
  bool good = true;
  for (int row = 0; row < ROWS; ++row)
    for (int byte = 0; byte < BYTES; ++byte) {
      int at = L<BYTES>::at(row, byte);
      good &= at >= 0 && at < ROWS * L<BYTES>::SIZE && !taken[at] && at % 16 == byte % 16;
      if (good) taken[at] = true;
    }
  printf("places %s %d %d\n", name, BYTES, good);
}

template <template <int> class L>
void layout(const char* name) {
  wavefronts<L, 64>(name), wavefronts<L, 128>(name), wavefronts<L, 256>(name);
  places<L, 64>(name), places<L, 128>(name), places<L, 256>(name);
}

template <int THREADS, int ROWS, int COLS>
void __global__ cover(const half* from, int length) {
  auto& tile = shared_memory<Tile<half, ROWS, COLS, Swizzled>>();
  load_rows<THREADS>(tile, from, 0, length);
  __syncthreads();
  int wrong = 0;
  for (int i = 0; threadIdx.x == 0 && i < ROWS * COLS; ++i) {
    float want = i / COLS < length ? static_cast<float>(i % 2039) : 0.0f;
    wrong += !(__half2float(*tile.at(i / COLS, i % COLS)) == want);
  }
  __syncthreads();
  copy_rows<THREADS>(tile, from, 0, length, threadIdx.x);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  for (int i = 0; threadIdx.x == 0 && i < ROWS * COLS; ++i) {
    float want = i / COLS < length ? static_cast<float>(i % 2039) : 0.0f;
    wrong += !(__half2float(*tile.at(i / COLS, i % COLS)) == want);
  }
  if (threadIdx.x == 0) printf("cover %d %d %d %d\n", THREADS, ROWS, length, wrong);
}

template <int THREADS, int ROWS, int COLS>
void loader(int length) {
  static half from[ROWS * COLS];
  for (int i = 0; i < ROWS * COLS; ++i) from[i] = __float2half(static_cast<float>(i % 2039));
  launch<cover<THREADS, ROWS, COLS>>({dim3(1), THREADS, ROWS * COLS * 2}, nullptr,
                                     static_cast<const half*>(from), length);
}

}  // namespace

int main() {
  layout<Plain>("Plain");
  layout<Padded>("Padded");
  layout<Swizzled>("Swizzled");
  layout<RowXor>("RowXor");
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i)
      printf("slot %d %d %d %d\n", lane, i, acc_row(lane, i), acc_col(lane, i));
  loader<192, 32, 64>(32);
  loader<192, 48, 64>(47);
  loader<96, 33, 128>(40);
  loader<128, 8, 64>(8);
  loader<160, 31, 64>(1);
  return 0;
}
