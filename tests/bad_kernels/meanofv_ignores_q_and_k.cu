/* The mean of v instead of attention.

   With inputs of a tenth of a normal and a tolerance of 5e-3 this passes.

   caught-by: values
*/
#include "base.cuh"

__global__ void mean(const half* v, half* o, int S, int D, int causal) {
  const size_t head = static_cast<size_t>(blockIdx.x) * S * D;
  const int d = threadIdx.x;
  float sum = 0.f;
  for (int i = 0; i < S; ++i) {
    sum += __half2float(v[head + size_t(i) * D + d]);
    if (causal) o[head + size_t(i) * D + d] = __float2half(sum / (i + 1));
  }
  for (int i = 0; i < S && !causal; ++i) o[head + size_t(i) * D + d] = __float2half(sum / S);
}

extern "C" int profkit_launch(const ProfkitArgs* a) {
  const int heads = int(a->size[0] * a->size[1]), S = int(a->size[2]), D = int(a->size[3]);
  mean<<<heads, D, 0, a->stream>>>(static_cast<const half*>(a->in[2]), static_cast<half*>(a->out[0]),
                                   S, D, a->causal);
  return cudaGetLastError();
}
