/* All WMMA, 16 rows a warp, and every lane does the whole softmax: the anti-pattern.

   Four warps own 16 rows each; the other four only help to load. For 16 keys at a time: scores to the
   warp's scratch, softmax, probabilities back as a fragment, output loaded, multiplied into and stored
   again. The 16x16 softmax is 256 exponentials in each of 32 lanes, where 8 a lane would do: XU
   instructions are 32 times the useful ones, in a chain of LDS, FADD, MUFU and STS that nothing
   overlaps. short_scoreboard leads; the tensor pipe is under 1 %.

   What came: the tensor pipe is at 0.4 % and XU does 34 times the useful work. But barrier leads, with
   45 %: the four warps without rows wait there all the while and count as much as those that work.
   With twice the tensor instructions of v2cv5 it is 3 % slower.

   after: v2cv5      arch: 80+
   moves: inst_matrix~2x inst_exp~1x
   budget: regs=255 smem=130K spills=0 stack=0
*/
#include "sixteen_rows.cuh"

using namespace v2c;

template <int D>
__global__ void __launch_bounds__(THREADS, 1) v2cv6a(Attention a) {
  load_and_attend<D, RedundantSoftmax>(a);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return launch<v2cv6a<D>>({dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(Shared<D, 1>)},
                             args->stream, a);
  });
}
