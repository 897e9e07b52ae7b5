/* Chunks swizzled by their row: no bank conflicts.

   stage2 whose tiles store the 16-byte chunk c of row r at place c XOR (r mod 8). ldmatrix reads one
   chunk of eight rows: with 128-byte rows these all lie in the same four banks (8 wavefronts), with
   the swizzle in all 32 (1 wavefront); tile.cuh counts that at compile time. Stores of scores and
   products gain the same way, and not a byte is added. Bank conflicts fall to about none. Whether
   time follows is the question: shared memory was busy, but the warps of stage2 wait more for
   barriers and for the softmax than for wavefronts.

   after: stage2      fixes: shared-bank-conflicts      arch: 80+
   moves: shared_ld_conflicts<0.1x shared_wavefronts<0.7x
   budget: regs=128 smem=70K spills=0 stack=0
*/
#include "tensor_block.cuh"

using namespace stage;

template <int D>
using Block = Plan<D, 2, Swizzled>;

template <int D>
__global__ void __launch_bounds__(THREADS, 5) stage2swizzle(Attention a) {
  tensor_block<Block<D>>(a);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return launch_tensor_block<Block<D>, stage2swizzle<D>>(a, args->stream);
  });
}
