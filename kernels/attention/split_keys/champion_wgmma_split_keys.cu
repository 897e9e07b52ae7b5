/* pair with the parts merged in registers: the fastest of the small shapes.

   As in pair, a block has 64 rows, each of two warpgroups its own keys and barriers, and where that
   leaves SMs idle, at A and B, a cluster of two blocks halves the keys once more. Here the parts are not
   added up in shared memory (merged.cuh): warps with the same rows exchange halves of columns,
   and what belongs to the other block is stored from registers straight into its shared memory, where
   a barrier counts the bytes: no cluster barrier at the end, no fence of the whole GPU. At A those parts
   go in fp16. At V, where the blocks suffice, it is pair without its cluster branches.

   On an H200, at A, B and V: 3.20, 3.69 and 4.89 us, pair 3.96, 3.92 and 4.86. Shared wavefronts were to
   fall below 0.9 of pair's: they did at A (0.80), not at B (0.94), where the parts go in fp32, nor at V.

   The sanitizers had a say in it. At first one lane arrived at an mbarrier for its warp, after
   __syncwarp: racecheck, which does not follow that, reported 10 errors, and profkit compared nothing.
   A barrier of the warps of a strip, or of the block, in either of the two branches for the warpgroups:
   racecheck clean, synccheck 156 times "divergent thread(s) in block". The same barrier once, after both
   branches: clean in all four, and as fast; so was an mbarrier at which every lane arrives.

   The rule long-scoreboard, which was to go, did not fire on splitk, where loads hide each other. It does
   in pair and here: with so little work left, a third and a fifth of the warps' time is the trip to L2.

   Launches may overlap: a block sets up its barriers while the kernel before still runs, and waits for
   that kernel's end before it reads or writes any tensor. Of calls in a row, as they are timed here,
   that hides a part; one call alone does not get it. inseries is the same without.

   Measured on the way, at A, B and V (us): more blocks per SM (3.8, 5.1, 8.0: those of the next launch
   come to lie two on one SM), four warpgroups (3.8, 4.4, 5.5), 128 rows a cluster (V 8.3).

   after: pair      arch: 90a      case: A      moves: shared_wavefronts<0.9x inst_barrier<0.9x
   budget: regs=255 smem=227K spills=0 stack=0
   tune: OVERLAP=1,0
*/
#include "merged.cuh"
#include "parts.cuh"

#ifndef OVERLAP
#define OVERLAP 1  // start before the kernel before has ended
#endif

// Where one block has the rows: pair without a cluster.
template <int D, int KEYS>
using Alone = parts::Plan<D, 2, KEYS, 2, 1>;

template <class P>
__global__ void __launch_bounds__(P::THREADS, 1)
    champion(Attention a, const __grid_constant__ parts::Maps maps) {
  parts::attend<P, OVERLAP>(a, maps);
}

template <class P>
cudaError_t start(const Attention& a, cudaStream_t stream) {
  return parts::start<P, champion<P>, OVERLAP>(a, stream);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    int sms = 0;
    if (cudaError_t e = device_attribute<cudaDevAttrMultiProcessorCount>(&sms)) return e;
    bool alone =
        2 * ceil_div(a.length, parts::M) * a.heads > sms;  // two blocks for the same rows: too many
    if constexpr (D == 128)
      return alone ? start<Alone<128, 64>>(a, args->stream)
                   : merged::start<merged::Plan<128, 64, false>, OVERLAP>(a, args->stream);
    else if (alone)
      return start<Alone<64, 128>>(a, args->stream);
    else if (a.length <= 256)
      return merged::start<merged::Plan<64, 64, true>, OVERLAP>(a, args->stream);
    else
      return merged::start<merged::Plan<64, 128, false>, OVERLAP>(a, args->stream);
  });
}
