/* lateraise that packs half of a tile's probabilities while the other half is computed.

   Packing has to wait for P V of the tile before, which reads the registers that it writes. Here that is
   waited for in the middle of the exponentials, so that F2FP and MUFU alternate in the second half.

   What came: 183.2 us at 2k after 180.5, a negative, and 346 at 4k (794 TFLOP/s). With V transposed beside the products it had gained 3 % (189.5 after 195.9 us in one
   process), for there P V ends later. XU 42.0 % busy: the wait in the middle costs what the packing gave.
   What is promised below was put down afterwards.

   Exponentials on the FMA pipe as a square polynomial (2, 4, 6 of 16): 190.4, 190.6 and more after 189.5.

   after: lateraise      arch: 90a      case: 2k
   moves: instructions~1x      moves-not: xu_busy>1.02x
   budget: regs=168 smem=162K spills=0 stack=0
*/
#include "warpgroups.cuh"

template <bool MASKED>
struct Plan : fp8::Basic<MASKED> {
  static constexpr Maximum MAXIMUM = Maximum::LAZY;
  static constexpr bool TOGETHER = true;
};

extern "C" int profkit_launch(const ProfkitArgs* args) { return fp8::start_any<Plan>(args); }
