/* Launched to begin before the kernel ahead has ended, and never waits for it.

   Alone, or again and again on the same arrays, it is right: what it reads too early is what it
   should have read. In a row of launches whose inputs change it takes those of another launch.

   after: right   caught-by: row   arch: 90+
*/
#include "base.cuh"

extern "C" int profkit_launch(const ProfkitArgs* a) {
  const int heads = int(a->size[0] * a->size[1]), S = int(a->size[2]), D = int(a->size[3]);
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3((S + Right::warps - 1) / Right::warps, heads);
  config.blockDim = dim3(32 * Right::warps);
  config.stream = a->stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  auto q = static_cast<const half*>(a->in[0]), k = static_cast<const half*>(a->in[1]),
       v = static_cast<const half*>(a->in[2]);
  auto o = static_cast<half*>(a->out[0]);
  if (D == 64)
    return cudaLaunchKernelEx(&config, attention<Right, 64>, q, k, v, o, S, a->scale, a->causal);
  if (D == 128)
    return cudaLaunchKernelEx(&config, attention<Right, 128>, q, k, v, o, S, a->scale, a->causal);
  return cudaErrorNotSupported;
}
