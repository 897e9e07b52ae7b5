/* nomax that waits for V when the scores have started.

   A warp asks two mbarriers before it starts a tile: K's and V's. Both have long been complete, but an
   answer takes 25 to 35 cycles, one after the other: 5 % of a warp's time in fourgroups at C. V is needed
   only after the scores: asked for in between, its answer comes while they run.

   Tried in passing, without a written prediction; 1 % was thought likely.

   What came, in one process: C 138.5 us after 140.0 (1.18 times cuDNN), D 236.6 after 241.6 (1.03 times),
   D causal 145.1 after 146.8; C causal 80.8 after 78.1, the other way. The same step without nomax's: C
   143.5 after 143.6, D 246.3 after 248.7, C causal 80.2 after 79.1. ptxas puts a second warpgroup.arrive
   before P V (C7519), since a branch now stands between the products.

   after: nomax      arch: 90a      case: D      moves: instructions~1x
   budget: regs=168 smem=227K spills=32 stack=32
*/
#include "warpgroups.cuh"

template <int D, bool MASKED>
struct Plan : warpgroups::Basic<D, D == 64 ? 4 : 2, D == 64 ? 64 : 128, D == 64 ? 4 : 2, MASKED> {
  static constexpr bool TURNS = D == 128, UNIFORM = true, V_LATE = true;
  static constexpr Maximum MAXIMUM = Maximum::NONE;
};

extern "C" int profkit_launch(const ProfkitArgs* args) { return warpgroups::start_any<Plan>(args); }
