/* Five shuffles for every number that is summed.

   A warp-wide sum of each loaded value. Shuffles go through the crossbar of shared memory, one warp
   instruction per cycle and SM: that is full, although no shared memory is touched.

   bound: memory      limiter: shared    cause: shared-bandwidth
   twin: yes          output: finite
   relieves: each lane adds its own number where it added another lane's
*/
#include "../probe.cuh"

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    float other = x;
    if (kTwin) opaque(other);
    else other = __shfl_xor_sync(~0u, x, offset);
    x += other;
  }
  return x;
}

__global__ void __launch_bounds__(256) shuffle(const float* in, float* out, float step) {
  float sum[4] = {}, x[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = in[thread_slot() + k];
  for (int i = 0; i < 240; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      sum[k] += warp_sum(x[k]);
      x[k] += step;
    }
  }
  out[thread_slot()] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, shuffle, 8 * sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.01f);
}
