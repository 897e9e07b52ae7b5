/* lazymax with four warpgroups, 256 rows and tiles of 64 keys.

   A warp of lazymax needs about 2900 cycles for a tile that tensor cores and XU each work on for 512: with
   three warps a scheduler each pipe is idle for more than 40 % of the time. A fourth warp needs registers:
   112 a thread are left when the producer has given up its own, enough for scores of 64 keys instead of
   128 (32 registers instead of 64, and 16 instead of 32 for the probabilities). And 256 rows divide 2048:
   512 tiles are 3.88 rounds of 132 blocks paid as 4, 97 %, where 704 tiles of 192 rows are 5.33 paid
   as 6, 89 %.

   Expected before it was measured: 1.09 from the rounds, and from the fourth warp 4/3 at most, less what
   twice as many barriers and votes cost: 125 to 135 us at C.

   What came: 140 us, 1.125 times cuDNN in the same run. With the true maximum 156 (lazymax gains more
   here, as there are twice as many maxima). Under a causal mask it is the first that needs no second
   shape, 89 us, 1.13 times cuDNN. With D = 128 there are no registers for it: two warpgroups there.

   Measured on the way at C (us): 80 and 96 keys only fit when P V is not started beside the scores, 164
   and 167; 64 like that 169; stages 3 and 6 instead of 4: 142 and 142; Q in one slot 146; one of sixteen
   exponentials on the FMA pipe 144. And a fault that cost a run: 120 registers were asked for, of which
   the block had been launched with too few (640 threads get 96 each): setmaxnreg waits for ever. There is
   a static_assert now in common/warpgroups.cuh, as wgmma had one.

   after: lazymax      arch: 90a      case: C
   moves: tensor_busy>1.05x xu_busy>1.05x
   budget: regs=168 smem=227K spills=64 stack=64
*/
#include "../common/warpgroups.cuh"

template <int D, bool MASKED>
struct Plan : warpgroups::Basic<D, D == 64 ? 4 : 2, D == 64 ? 64 : 128, D == 64 ? 4 : 2, MASKED> {
  static constexpr bool TURNS = D == 128;
  static constexpr Maximum MAXIMUM = D == 128 ? Maximum::EVERY : Maximum::LAZY;
};

extern "C" int profkit_launch(const ProfkitArgs* args) { return warpgroups::start_any<Plan>(args); }
