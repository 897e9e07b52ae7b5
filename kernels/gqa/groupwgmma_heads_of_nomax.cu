/* The heads mapped in the warpgroup kernel: wgmma, TMA, a producer that stays ahead.

   mapped leaves the tensor cores idle most of the time, as stage3b does with eight heads as with one.
   nomax of the problem attention with the producer asking for head h / 8 of K and V: nothing else
   differs, and TMA finds the same K and V in L2 that the other heads of the group just read. With D of
   128 a causal mask is worked on eight heads at a time, which is one group: all blocks share one head.

   after: mapped      arch: 90a
   moves: inst_matrix<0.2x tensor_busy>1.5x
   budget: regs=168 smem=227K spills=32 stack=32
*/
#include "heads.cuh"
#include "../attention/warpgroups/warpgroups.cuh"

template <int D, bool MASKED>
struct Plan : warpgroups::Basic<D, D == 64 ? 4 : 2, D == 64 ? 64 : 128, D == 64 ? 4 : 2, MASKED> {
  static constexpr bool TURNS = D == 128, UNIFORM = true;
  static constexpr Maximum MAXIMUM = Maximum::NONE;
  static __device__ __forceinline__ int key_head(int head) { return head / GROUP; }
};

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return of_group(args) ? warpgroups::start_any<Plan>(args) : cudaErrorNotSupported;
}
