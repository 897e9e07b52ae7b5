/* One thread per row.

   Neighbouring threads read addresses a whole row apart: a warp's load touches 32 sectors where 2
   would do, and there are only as many threads as rows. Memory should wait, not work.

   budget: regs=64 smem=0 spills=0 stack=0
*/
#include <cuda_fp16.h>

#include "../common/variant.cuh"

__global__ void thread_a_row(const half* in, float* out, int rows, int columns) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = 0;
  for (int i = 0; i < columns; ++i) sum += __half2float(in[size_t(row) * columns + i]);
  out[row] = sum;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  int rows = int(args->size[0]), columns = int(args->size[1]);
  thread_a_row<<<(rows + 127) / 128, 128, 0, args->stream>>>(
      static_cast<const half*>(args->in[0]), static_cast<float*>(args->out[0]), rows, columns);
  return cudaGetLastError();
}
