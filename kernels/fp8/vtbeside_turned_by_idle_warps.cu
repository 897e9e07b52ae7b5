/* vtfirst whose idle warps transpose V beside the products.

   Three of the producer's four warps have nothing to do. Here they transpose each tile of V on its way from
   one buffer of shared memory to another, as vtlines does, and no launch comes first.

   Reckoned beforehand, and put down here afterwards: the launch's time gone, shared memory a quarter busier.

   What came: 192.5 us at 2k after 188.3, a negative; at 4k 389. Each block of rows transposes all of V
   again, 16 times at 2k and 32 at 4k. The tool's word: fixed-latency, shared memory the busiest at
   46 %; the warps that transpose take issue slots and shared memory from those that multiply.

   after: vtlines      arch: 90a      case: 2k
   moves: shared_busy>1.2x
   budget: regs=168 smem=201K spills=0 stack=0
*/
#include "warpgroups.cuh"

template <bool MASKED>
struct Plan : fp8::Basic<MASKED> {
  static constexpr int RAW = 2;
};

extern "C" int profkit_launch(const ProfkitArgs* args) { return fp8::start_any<Plan>(args); }
