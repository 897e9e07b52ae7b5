/* wgmma with a maximum that is raised only when it has to be, and looked for in eight chains.

   wgmma's warps wait for the maximum: 68 FMNMX in one chain a row take a fifth of the 2900 cycles that a
   warp needs for a tile, row g+8 is not begun before row g has gone through its shuffles, and 32 FMUL
   rescale an output whose maximum hardly ever moves after the first tile. A maximum need not be the
   maximum: whatever keeps exp2 within the range of a half will do. Here a lane looks for its largest
   score in four chains a row, one vote tells whether any lies 2^8 above what is in use, and only then do
   the lanes exchange maxima and rescale. Q of the next tile is fetched while this one is worked on.

   Reckoned beforehand, and put down here afterwards: a sixth of a warp's cycles, 134 us at C. Rule
   fixed-latency says 1.34x at most of wgmma.

   What came, with XU 1.03 times as busy only, each pair in one process: 150 us where wgmma takes 162 and cuDNN 157; in another, hotter run
   158, 168 and 163. The eight chains alone: 156. Less than was expected: what the maximum's cycles had
   hidden, the wait for XU, is seen now.

   With two warpgroups (D = 128, and causal) it loses: 255 us at D where the true maximum takes 246, for
   the branch keeps the compiler from running the exponentials of row g beside the maximum of row g+8, and
   there are too few warps to do that instead. There the true maximum stays.

   Measured on the way at C (us): exponentials on the FMA pipe, of sixteen 1, 2, 4: 155, 156, 162, for XU
   is busy 58 % of the time and issue slots are what they cost; turns 151; tiles of 112 and 96 keys 178
   and 182; products one after the other, so that P V is not beside the softmax, 173 to 189.

   after: wgmma      arch: 90a      case: C
   moves: inst_fp32<0.9x      moves-not: xu_busy>1.05x
   budget: regs=168 smem=227K spills=0 stack=0
   tune: CUBIC_OF_16=0,1,2,4
*/
#include "warpgroups.cuh"

#ifndef CUBIC_OF_16
#define CUBIC_OF_16 0
#endif

template <int D, bool MASKED>
struct Plan : warpgroups::Basic<D, D == 64 && !MASKED ? 3 : 2, 128, 2, MASKED> {
  static constexpr bool TURNS = Plan::GROUPS == 2;
  static constexpr Maximum MAXIMUM = Plan::GROUPS == 2 ? Maximum::EVERY : Maximum::LAZY;
  static constexpr int CUBIC = CUBIC_OF_16;
};

extern "C" int profkit_launch(const ProfkitArgs* args) { return warpgroups::start_any<Plan>(args); }
