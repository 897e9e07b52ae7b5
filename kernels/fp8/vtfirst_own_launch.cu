/* FP8 attention on wgmma: V transposed by a launch before.

   The first step of attention on FP8 tensor cores: two warpgroups of 64 rows, tiles of 128 keys, a producer
   that keeps Q, K and V ahead, the true maximum after every tile. Probabilities need no shuffle between
   the products, for keys change places in V instead (e4m3.cuh), and V is transposed anyway: here by a
   warp's registers, 32 keys by four columns a lane.

   Reckoned beforehand, and put down here afterwards: C's best (latev) does as many exponentials in as many
   tensor cycles in 132 us; with half as many warps 160, and 7 for V.

   What came: 198 us at 2k, 694 TFLOP/s. profkit diagnose: attend is "latency: wait" by tensor-xu-serial,
   the tensor pipe 40.5 % and XU 42.0 % busy, taking turns; transpose_v, a tenth of the time, is
   uncoalesced-access, L2 at 72 % of its peak for 33 MB.

   Measured on the way at 2k (us; parts of 64 keys, three warpgroups): 201 to 227; without exponentials 167,
   without packing 200: F2FP costs nothing. With the next rows' first scores started before the output is
   stored 216 to 248: ptxas then serializes all products (C7515).

   arch: 90a      case: 2k
   budget: regs=168 smem=162K spills=0 stack=0
*/
#include "warpgroups.cuh"

template <bool MASKED>
struct Plan : fp8::Basic<MASKED> {
  using Turn = fp8::TurnWords;
};

extern "C" int profkit_launch(const ProfkitArgs* args) { return fp8::start_any<Plan>(args); }
