/* A third tile in flight: a negative.

   stage2 with a ring of three. Two tiles already hide the trip to L2 behind a whole tile of work, so
   there is nothing left for a third to hide: time and stalls stay. 8 KB more shared memory is all
   that moves: five blocks per SM become four on an H200 (the limit by shared memory), where neither
   is reached at B. What came: exactly that. long-scoreboard is clear on both sides: 1 % of the warps'
   time waits for loads, with two tiles or with three.

   after: stage2      arch: 80+
   moves: limit_shared~0.8x stall_long_scoreboard~1x
   budget: regs=128 smem=86K spills=0 stack=0
*/
#include "tensor_block.cuh"

using namespace stage;

template <int D>
using Block = Plan<D, 3, Plain>;

template <int D>
__global__ void __launch_bounds__(THREADS, 5) stage4(Attention a) {
  tensor_block<Block<D>>(a);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return launch_tensor_block<Block<D>, stage4<D>>(a, args->stream);
  });
}
