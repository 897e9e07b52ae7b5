/* fourgroups whose warpgroups know that they have one number.

   Where a matrix lies is told to wgmma in a descriptor, in uniform registers. Which Q a warpgroup has
   depends on threadIdx, and the compiler cannot know that 128 threads agree: so it keeps the descriptors
   of Q in eight registers of each thread, moves them over with R2UR before each product, and products
   wait for that. Under a causal mask there are not enough registers for all that, and loop counters go to local
   memory. A shuffle from lane 0 says that a number is the same for the warp, and the eight registers, the
   moves and the spills are gone: one line.

   Expected before it was measured: registers fall by 8, no spill is left; instructions 5 % fewer; the 100
   cycles that four products wait for R2UR in a tile of 1300 go, so 3 to 7 % at C and more under a causal
   mask, where the spilled variant of the same order took 161 us at C instead of 142.

   What came, in one process: C 143.6 us after 147.5, 2.7 % (a warp spends 2 % of its time in those waits,
   less than was counted); under a causal mask 79.1 after 88.1, 11 %, and 1.28 times cuDNN; D, two
   warpgroups, 248.7 after 253.2.

   after: fourgroups      arch: 90a      case: C
   moves: instructions<0.97x
   budget: regs=168 smem=227K spills=0 stack=0
*/
#include "warpgroups.cuh"

template <int D, bool MASKED>
struct Plan : warpgroups::Basic<D, D == 64 ? 4 : 2, D == 64 ? 64 : 128, D == 64 ? 4 : 2, MASKED> {
  static constexpr bool TURNS = D == 128, UNIFORM = true;
  static constexpr Maximum MAXIMUM = D == 128 ? Maximum::EVERY : Maximum::LAZY;
};

extern "C" int profkit_launch(const ProfkitArgs* args) { return warpgroups::start_any<Plan>(args); }
