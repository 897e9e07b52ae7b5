// Planted: neighbours in a warp read a row apart. Mend (--mended): they read side by side.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

constexpr int kRows = 8192, kColumns = 8192;

__global__ void scale_strided(const float* in, float* out) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x, column = blockIdx.y;
  out[row * kColumns + column] = 2.0f * in[row * kColumns + column];
}

__global__ void scale_rows(const float* in, float* out) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
  out[row * kColumns + column] = 2.0f * in[row * kColumns + column];
}

__global__ void shift_rows(const float* in, float* out) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
  out[row * kColumns + column] = 1.0f + in[row * kColumns + column];
}

static void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(status));
  std::exit(1);
}

int main(int count, char** words) {
  bool mended = false, timed = false;
  for (int i = 1; i < count; ++i) {
    mended |= std::strcmp(words[i], "--mended") == 0;
    timed |= std::strcmp(words[i], "--seconds") == 0;
  }
  float *a, *b;
  check(cudaMalloc(&a, sizeof(float) * kRows * kColumns));
  check(cudaMalloc(&b, sizeof(float) * kRows * kColumns));
  check(cudaMemset(a, 1, sizeof(float) * kRows * kColumns));
  const dim3 grid(kRows / 256, kColumns);
  const auto step = [&] {
    if (mended)
      scale_rows<<<grid, 256>>>(a, b);
    else
      scale_strided<<<grid, 256>>>(a, b);
    shift_rows<<<grid, 256>>>(b, a);
    shift_rows<<<grid, 256>>>(a, b);
  };
  for (int i = 0; i < 10; ++i) step();
  check(cudaDeviceSynchronize());
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 50; ++i) step();
  check(cudaDeviceSynchronize());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (timed) std::printf("{\"seconds\": %.9f}\n", took.count() / 50);
  return 0;
}
