/* Tensor cores through WMMA; scores, probabilities and products through shared memory.

   v1 with its two products as 16x16x16 WMMA tiles. WMMA does not say which lane holds what, so the
   scores go to shared memory for the softmax, the probabilities come back as halves, and P V goes to
   a second output that is added to the first. Tensor instructions appear, FFMA all but vanish, and
   the products take a few percent of the time. The rest is waiting: six barriers a tile, and between
   two of them 32 threads of 128 do the softmax. barrier leads the stalls; a few times faster than v1
   and nowhere near the tensor pipe.

   What came: 1.5 times, tensor pipe below 1 %, barriers 17 % of the warps' time, which was 3 %. They do
   not lead: the loads that nothing overlaps do, with 48 %, hidden in v1 behind arithmetic that is gone.

   after: v1      fixes: tensor-idle      arch: 80+      budget: regs=128 smem=75K spills=0 stack=0
   moves: inst_matrix>1x stall_barrier>2x inst_ffma<0.1x
*/
#include "wmma_block.cuh"

constexpr int M = 32;

template <int D>
__global__ void __launch_bounds__(THREADS<M>) v2(Attention a) {
  wmma_block<D, M>(a);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return launch<v2<D>>({dim3(ceil_div(a.length, M), a.heads), THREADS<M>, sizeof(Shared<D, M>)},
                         args->stream, a);
  });
}
