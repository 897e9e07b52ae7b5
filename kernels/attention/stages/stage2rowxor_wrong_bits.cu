/* A swizzle of the wrong bits: a negative.

   stage2 whose tiles store chunk c of row r in row r XOR (c mod 4), at place c. It looks like a
   swizzle and costs like one. But rows are 128 bytes, so the banks of an element depend on its place
   in the row and not on the row: eight rows of one chunk share four banks before and after. Bank
   conflicts and time stay where they are; only integer instructions are added.

   after: stage2      fixes-not: shared-bank-conflicts      arch: 80+
   moves: shared_ld_conflicts~1x
   budget: regs=128 smem=70K spills=0 stack=0
*/
#include "tensor_block.cuh"

using namespace stage;

template <int D>
using Block = Plan<D, 2, RowXor>;

template <int D>
__global__ void __launch_bounds__(THREADS, 5) stage2rowxor(Attention a) {
  tensor_block<Block<D>>(a);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return launch_tensor_block<Block<D>, stage2rowxor<D>>(a, args->stream);
  });
}
