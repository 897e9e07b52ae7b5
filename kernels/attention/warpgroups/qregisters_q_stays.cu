/* nomax with Q in registers where D is 128: a third less read from shared memory for the scores.

   wgmma reads both operands of Q K^T from shared memory: for 64 rows and 128 keys with D = 128, 16 KB of Q
   again for each tile beside 32 KB of K, and 32 KB of V for P V. Q never changes: 32 registers hold a
   thread's part, of the 240 that two warpgroups leave each. The slot of Q is free at once, so one is
   enough, and its 32 KB make a third stage of K and V.

   Expected before it was measured: shared wavefronts fall by a fifth. At D the clock is what power allows,
   so 1 to 3 %, which is what cuDNN is ahead.

   What came, in one process: D 236.3 us after 241.6, 1.03 times cuDNN; causal 145.6 after 146.8, 1.13
   times. But a third stage alone, with Q read from shared memory, takes 235.5: the stage did it, and Q in
   registers nothing. Power is not what these reads cost, or the 20 bytes of spills take it back.

   It was wrong, and no case or check of the ladder saw it: with 128 full keys a tile, more tiles of rows
   than SMs and just two tiles of keys (S = 130 to 256, 200 heads or more) some outputs were 0.5 off. The grid
   of shapes found it. Q was given back when ldmatrix had been started; what TMA wrote there next could come
   first. Emulated it is right, for there a read is over at once. It is given back after the first product now,
   a moment later in a tile of two thousand cycles. Of the mended code, on another H200: D 227.3 us and
   latev 227.1 in the same process, causal 136.7.

   after: nomax      arch: 90a      case: D
   moves: shared_wavefronts<0.9x
   budget: regs=168 smem=227K spills=48 stack=48
*/
#include "warpgroups.cuh"

template <int D, bool MASKED>
struct Plan : warpgroups::Basic<D, D == 64 ? 4 : 2, D == 64 ? 64 : 128, D == 64 ? 4 : 3, MASKED> {
  static constexpr bool TURNS = D == 128, UNIFORM = true, Q_IN_REGISTERS = D == 128;
  static constexpr int Q_SLOTS = D == 128 ? 1 : 2;
  static constexpr Maximum MAXIMUM = Maximum::NONE;
};

extern "C" int profkit_launch(const ProfkitArgs* args) { return warpgroups::start_any<Plan>(args); }
