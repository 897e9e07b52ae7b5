/* A block a row, one element at a time, three times over the row.

   The way the formula is written: a pass that adds and takes the mean, one for the variance, one that
   normalises. The row is read back from where the first pass put it. It fits in L1, so DRAM sees x, r,
   h and y once; but every element is three loads of two bytes, each of which the thread waits for.

   arch: 80+      budget: regs=64 smem=1K spills=0 stack=0
*/
#include "norm.cuh"

constexpr int THREADS = 256, WARPS = THREADS / 32;

template <class T, bool RMS>
__global__ void __launch_bounds__(THREADS) three_passes(Norm<T> n) {
  auto& scratch = shared_memory<float[2][WARPS]>();
  size_t row = static_cast<size_t>(blockIdx.x) * n.width;
  float sum = 0.0f, squares = 0.0f;
  for (int i = threadIdx.x; i < n.width; i += THREADS) {
    T h = residual(n.x[row + i], n.r[row + i]);
    n.h[row + i] = h;
    sum += to_float(h);
  }
  float mean = RMS ? 0.0f : block_sum(sum, scratch[0], WARPS) / n.width;
  for (int i = threadIdx.x; i < n.width; i += THREADS) {
    float centred = to_float(n.h[row + i]) - mean;
    squares += centred * centred;
  }
  float factor = rsqrtf(block_sum(squares, scratch[1], WARPS) / n.width + n.eps);
  for (int i = threadIdx.x; i < n.width; i += THREADS) {
    float y = (to_float(n.h[row + i]) - mean) * factor * to_float(n.w[i]);
    round_to(&n.y[row + i], RMS ? y : y + to_float(n.b[i]));
  }
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_norm(args, [&](auto n, auto rms) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(n.x)>>;
    return int{launch<three_passes<T, decltype(rms)::value>>(
        {dim3(n.rows), THREADS, sizeof(float[2][WARPS])}, args->stream, n)};
  });
}
