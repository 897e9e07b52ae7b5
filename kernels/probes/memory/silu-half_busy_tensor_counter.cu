/* SiLU of half-precision numbers, element by element.

   Two bytes in and two out for a handful of operations: DRAM. The trap: half-precision instructions
   that are no matrix product (HFMA2.MMA) count on the tensor pipe's cycle counter, so "tensor"
   reads a few per cent although no matrix instruction runs.

   bound: memory      limiter: dram      cause: dram-bandwidth
   twin: no           output: finite
*/
#include <cuda_fp16.h>

#include "../probe.cuh"

__global__ void __launch_bounds__(512, 3) silu_half(const uint4* in, uint4* out, __half2 one) {
  for (unsigned i = thread_slot(); i < kBufferWords / 8; i += thread_count()) {
    union { uint4 all; __half2 pair[4]; } v = {in[i]};
#pragma unroll
    for (int k = 0; k < 4; ++k) 
      v.pair[k] = __hmul2(v.pair[k], h2rcp(__hadd2(one, h2exp(__hneg2(v.pair[k])))));
    out[i] = v.all;
  }
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, silu_half, 4 * sm_count(), 512, 0, static_cast<const uint4*>(args->in[3]),
               static_cast<uint4*>(args->out[0]), __float2half2_rn(args->scale));
}
