/* P V on the tensor cores too.

   Probabilities go to shared memory as halves, each warp multiplies 16 rows by half of V, and the
   product comes back through a scratch of 2 KB a warp, from where it is added to the output. 64
   reads and multiply-adds a lane, row and tile become a few tensor instructions and a round trip of
   the scratch: shared-memory wavefronts fall by several times, tensor instructions double, FFMA all
   but vanish. The price is 10 KB: on an L4 two blocks per SM instead of three, and the 128 blocks of
   B are then 1.10 waves, that is, two rounds. On an H200 five fit and B never fills one wave.

   What came: all but the wavefronts, which fall to 0.63 only. Three in four of those left are bank
   conflicts, so a kernel that waited for answers now fills shared memory: the bound goes from latency
   to memory. short-scoreboard is not gone: the conflicts explain it now, and two thirds of the time is
   still spent there.

   after: stage1      fixes-not: short-scoreboard      arch: 80+
   moves: inst_matrix~2x inst_ffma<0.1x blocks_per_sm<0.9x      moves-not: shared_wavefronts<0.5x
   budget: regs=128 smem=70K spills=0 stack=0
*/
#include "tensor_block.cuh"

using namespace stage;

template <int D>
using Block = Plan<D, 2, Plain>;

template <int D>
__global__ void __launch_bounds__(THREADS, 5) stage2(Attention a) {
  tensor_block<Block<D>>(a);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return launch_tensor_block<Block<D>, stage2<D>>(a, args->stream);
  });
}
