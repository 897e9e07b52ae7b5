/* uniform without a maximum after the first tile: probabilities that grow too large show in their sum.

   lazymax still looks at every score to find that nothing has to be done: 64 FMNMX of 290 instructions a
   warp and 128 keys, on a pipe of half rate. The first tile of 64 or 128 keys gives a maximum that the
   other scores do not exceed by much, and a lane adds up its probabilities anyway: if that sum is below
   2^14, so is each of them, and a half holds it. If not (or it is infinite, or NaN), that warp alone
   computes the scores again with mma.sync, from K, which it has not given back yet, and takes the true
   maximum. Exact in any case; slow where scores rise from tile to tile.

   Expected before it was measured on uniform: at D 5 %: FMNMX and FMUL are 130 of 480 instructions, and both kernels
   run at 1.7 of 1.98 GHz for the power, which instructions cost. At C less, 2 to 3 %: the pipes are shared
   better there.

   What came, in one process: D 241.6 us after 248.7 (2.9 %, 1.01 times cuDNN), C 140.0 after 143.6
   (2.5 %, 1.16 times), causal 78.1 after 79.1 and, at D, 146.8 after 152.0. With three warpgroups of 128
   keys it had lost to lazymax (157 and 151 us at C), with 36 bytes of spills.

   Measured on the way at D, with Q in one slot: three stages instead of two 235.5 us, for K is given back
   late here; two stages of 160 keys 234.8, of 176 keys 248.5.

   after: uniform      arch: 90a      case: D
   moves: inst_fp32<0.9x instructions<0.9x
   budget: regs=168 smem=227K spills=32 stack=32
*/
#include "warpgroups.cuh"

template <int D, bool MASKED>
struct Plan : warpgroups::Basic<D, D == 64 ? 4 : 2, D == 64 ? 64 : 128, D == 64 ? 4 : 2, MASKED> {
  static constexpr bool TURNS = D == 128, UNIFORM = true;
  static constexpr Maximum MAXIMUM = Maximum::NONE;
};

extern "C" int profkit_launch(const ProfkitArgs* args) { return warpgroups::start_any<Plan>(args); }
