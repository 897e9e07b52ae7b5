/* lazymax with four warpgroups, 256 rows and tiles of 64 keys.

   Of lazymax's time on an SM, tensor cores and XU work 58 % each: three warps a scheduler do not always
   have one for them. A fourth warp needs registers: 112 a thread are left when the producer has given up
   its own, enough for scores of 64 keys instead of 128 (32 registers instead of 64, and 16 instead of 32
   for the probabilities). And 256 rows divide 2048: 512 tiles are 3.88 rounds of 132 blocks paid as 4,
   97 %, where 704 tiles of 192 rows are 5.33 paid as 6, 89 %.

   Reckoned beforehand, and put down here afterwards: 1.09 from the rounds, and four warps that share the
   pipes well enough for 750 cycles of an SM per 64 rows and 128 keys instead of 960: 100 us at C.

   What came: 140 us where lazymax takes 150, 1.12 times cuDNN in that run; 1.10 and 1.13 in two others.
   ncu says why it is not more: SMs are active for 226 000 cycles on average, as with lazymax, of 244 000
   instead of 265 000 in all. The rounds gave everything, the fourth warp nothing: tensor cores and XU work
   56 % of the active time each, and a tile of 64 keys has the barriers and votes of one of 128. With the
   true maximum 156. Under a causal mask, too, it is the first to pass cuDNN, by 1.15 (88 and 101 us).
   With D = 128 there are no registers for it: two warpgroups there.

   Measured on the way at C (us): 80 and 96 keys only fit when P V is not started beside the scores, 164
   and 167; 64 like that 169; stages 3 and 6 instead of 4: 142 and 142; Q in one slot 146; one of sixteen
   exponentials on the FMA pipe 144. And a fault that cost a run: 120 registers were asked for, of which
   the block had been launched with too few (640 threads get 96 each): setmaxnreg waits for ever. There is
   a static_assert now in warpgroups.cuh, as wgmma had one.

   after: lazymax      arch: 90a      case: C
   moves-not: tensor_busy>1.05x xu_busy>1.05x
   budget: regs=168 smem=227K spills=96 stack=32
*/
#include "warpgroups.cuh"

template <int D, bool MASKED>
struct Plan : warpgroups::Basic<D, D == 64 ? 4 : 2, D == 64 ? 64 : 128, D == 64 ? 4 : 2, MASKED> {
  static constexpr bool TURNS = D == 128;
  static constexpr Maximum MAXIMUM = D == 128 ? Maximum::EVERY : Maximum::LAZY;
};

extern "C" int profkit_launch(const ProfkitArgs* args) { return warpgroups::start_any<Plan>(args); }
