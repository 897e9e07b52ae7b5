/* Every lane of a warp computes all the exponentials of one row.

   A row sum of exponentials, done 32 times over because each lane walks the whole row: the
   special-function unit is full, and 31 of 32 of its results are copies. Its counters look like
   those of a kernel that needs them all; only the workload's own count tells the two apart.

   bound: compute     limiter: xu        cause: redundant-exp
   also: xu-pipe
   declares: declared_exps=21626880
   twin: yes          output: close
   relieves: one exponential per lane; the lanes add up once, at the end
*/
#include "../probe.cuh"

__device__ __forceinline__ float exp2_unit(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__global__ void __launch_bounds__(256) redundant_exp(const float* in, float* out, float step) {
  __shared__ float row[8][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  row[warp][lane] = -in[thread_slot()];
  __syncwarp();
  float all = 0.0f;
  for (int round = 0; round < 80; ++round) {
    const float shift = step * round;
    float sum = 0.0f;
    if (kTwin) {
      sum = exp2_unit(row[warp][lane] - shift);
    } else {
#pragma unroll
      for (int k = 0; k < 32; ++k) sum += exp2_unit(row[warp][k] - shift);
    }
    all += sum;
  }
#pragma unroll
  for (int offset = 16; kTwin && offset > 0; offset /= 2)
    all += __shfl_xor_sync(~0u, all, offset);
  out[thread_slot()] = all;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, redundant_exp, 8 * sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), args->scale * 0.01f);
}
