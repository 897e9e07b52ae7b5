/* Multiply-adds that ask the register file for three operands each.

   One dependent chain per thread, factor and addend in registers of the thread. The scheduler turns
   to another warp with each instruction, so no operand can be kept at hand from the one before, and
   the banks of the register file do not deliver three of them every cycle: warps are chosen and
   held back. Neither the FP32 pipe nor the issue slots get near their peak.

   bound: latency     limiter: dispatch_stall  cause: dispatch-stall
   twin: yes          output: same
   relieves: the factor is a literal in the instruction, which leaves two register operands
*/
#include "../probe.cuh"

constexpr float kFactor = 0.999f;

__global__ void __launch_bounds__(256)
    dispatch(const float* in, float* out, float nothing) {
  const float factor = kTwin ? kFactor : fmaf(nothing, in[threadIdx.x], kFactor);
  const float addend = fmaf(nothing, in[threadIdx.x + 1], 0.01f);
  float x = in[thread_slot()];
#pragma unroll 64
  for (int i = 0; i < 12800; ++i) x = fmaf(x, factor, addend);
  out[thread_slot()] = x;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return start(args, dispatch, 8 * sm_count(), 256, 0, static_cast<const float*>(args->in[0]),
               static_cast<float*>(args->out[0]), static_cast<float>(args->causal));
}
