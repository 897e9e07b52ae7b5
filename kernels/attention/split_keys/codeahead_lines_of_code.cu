/* lineseach whose blocks ask for the lines of their own code, too.

   With lineseach the tensors come sooner: at A waits for data (long_scoreboard) fall from 25 to 17 % of the
   warps' time under ncu, which empties the caches. And nothing is gained, for waits for instructions
   rise from 9 to 16 %: L2 has no code either, 29 KB that a warp runs through once, line by line, each
   line from DRAM when it is needed. The two waits had hidden each other. Here every block names one or
   two of the 288 lines from the kernel's address on, with its first instructions.

   Expected before it was measured: no_instruction falls below 8 %; cold 0.2 to 0.4 us faster than
   selfoverlap at A and B, where it was most, 0.1 to 0.2 at V; warm the same. If the address of a kernel is
   none that data paths can read, nothing happens.

   What came, in one process: cold 5.03, 5.43 and 7.28 us where selfoverlap takes 4.95, 5.44 and 7.18 and lineseach
   4.78, 5.40 and 7.31; warm 3.33, 3.85 and 4.95 after 3.22, 3.70 and 4.89: a tenth of a microsecond is what these
   instructions cost, and nothing comes back. Waits for instructions fall from 16 to 13 % at A, not to 8: the address
   of the code lies in a constant bank, which is cold too (imc_miss 4 to 6 %), and the rest is waited for at
   the barrier, 7 to 15 %. What is left of a cold call is a chain of first touches, each hidden by another.

   after: lineseach      arch: 90a      flags: -DOVERLAP=2 -DAHEAD=3      case: A
   moves: instructions~1x      moves-not: stall_no_instruction<0.6x
   budget: regs=255 smem=227K spills=0 stack=0
*/
#include "champion_wgmma_split_keys.cu"
