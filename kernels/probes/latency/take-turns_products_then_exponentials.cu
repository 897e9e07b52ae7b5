/* Matrix products, then exponentials of them, then products with those.

   One warp per scheduler, as in attention: the next product needs all exponentials and those need
   the product before. Tensor and special-function pipe are each busy half of the time and never
   together.

   bound: latency     limiter: wait      cause: tensor-xu-serial
   twin: yes          output: finite
   relieves: two such chains per warp, one multiplying while the other exponentiates
*/
#include <cuda_fp16.h>

#include "../probe.cuh"

constexpr int kSteps = 320;

__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A 16 x 64 tile of scores and, as the next product's operand, its exponentials in half precision.
struct Chain {
  float score[8][4];
  unsigned power[4][4];
};

__device__ __forceinline__ void product(Chain& c, int i, const unsigned (&b)[8][2]) {
  if (i < 8) c.score[i][0] = c.score[i][1] = c.score[i][2] = c.score[i][3] = 0.0f;
  mma(c.score[i % 8], c.power[i / 8], b[i % 8]);
}

__device__ __forceinline__ void exponential(Chain& c, int i, float scale) {
  float* x = &c.score[i / 4][i % 4];
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(*x) : "f"(*x * scale));
  if (i % 2) {
    const __half2 both = __floats2half2_rn(x[-1], x[0]);
    c.power[i / 8][i % 8 / 2] = *reinterpret_cast<const unsigned*>(&both);
  }
}

__global__ void __launch_bounds__(128) take_turns(const unsigned* in, float* out, float scale) {
  unsigned b[8][2];
  Chain one = {}, two = {};
#pragma unroll
  for (int k = 0; k < 16; ++k) one.power[k / 4][k % 4] = in[thread_slot() * 32 + k];
#pragma unroll
  for (int k = 0; k < 16; ++k) b[k / 2][k % 2] = in[thread_slot() * 32 + 16 + k];
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step) {
    Chain& other = kTwin ? two : one;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      product(one, i, b);
      if (kTwin) exponential(two, i, scale);
    }
#pragma unroll
    for (int i = 0; i < 32 && !kTwin; ++i) exponential(one, i, scale);
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      product(other, i, b);
      if (kTwin) exponential(one, i, scale);
    }
#pragma unroll
    for (int i = 0; i < 32 && !kTwin; ++i) exponential(one, i, scale);
  }
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 32; ++k) sum += one.score[k / 4][k % 4] + two.score[k / 4][k % 4];
  out[thread_slot()] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, take_turns, sm_count(), 128, 0, static_cast<const unsigned*>(args->in[3]),
               static_cast<float*>(args->out[0]), args->scale * 0.05f);
}
