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
#include "../../common/capture.cuh"
#include "merged.cuh"

#ifndef OVERLAP
#define OVERLAP 1  // start before the kernel before has ended; 2: only if that is one of these
#endif
constexpr int M = 64;

// One block for 64 rows. GROUPS: of four warps; part p of the keys is slices p, p + GROUPS, … KEYS: a
// slice. SLOTS: slices held per group.
template <int D_, int GROUPS_, int KEYS_, int SLOTS_>
struct Plan {
  static constexpr int D = D_, GROUPS = GROUPS_, KEYS = KEYS_, SLOTS = SLOTS_;
  static constexpr int THREADS = 128 * GROUPS;
  struct Slot {
    Slabs<KEYS, D> k, v;
  };
  struct Shared {
    Slabs<M, D> q;
    Slot slot[GROUPS][SLOTS];
    splitk::Part<M, D> part[GROUPS];
    Barrier q_here, k_here[GROUPS][SLOTS], v_here[GROUPS][SLOTS];
  };
};

using merged::Maps;

template <class P>
__global__ void __launch_bounds__(P::THREADS, 1)
    champion(Attention a, const __grid_constant__ Maps maps) {
  constexpr int D = P::D, KEYS = P::KEYS, SLOTS = P::SLOTS, PARTS = P::GROUPS;
  auto& m = shared_memory<typename P::Shared>();
  int thread = threadIdx.x % 128, lane = threadIdx.x % 32, group = threadIdx.x / 128;
  int first = blockIdx.x * M, head = blockIdx.y;
  int row = thread / 32 * 16;  // of this warp, among the M
  int slices = ceil_div(a.keys(first + M), KEYS);

  if (AHEAD == 3)
    prefetch_code<merged::LINES_OF_CODE>(reinterpret_cast<const void*>(&champion<P>), threadIdx.x);
  if (AHEAD >= 2 && threadIdx.x >= 32) {
    constexpr int AT_ONCE = P::THREADS - 32;
    prefetch_lines<D, AT_ONCE>(head_of<D>(a.q, a, head), first, M, a.length, threadIdx.x - 32);
    prefetch_lines<D, AT_ONCE>(head_of<D>(a.k, a, head), first, M, a.length, threadIdx.x - 32);
    prefetch_lines<D, AT_ONCE>(head_of<D>(a.v, a, head), first, M, a.length, threadIdx.x - 32);
  }
  if (AHEAD == 1 && threadIdx.x == 32) {  // of another warp than the one that fetches
    constexpr int FIRST = SLOTS * PARTS * KEYS;
    const int keys = a.keys(first + M);
    prefetch_rows<D>(head_of<D>(a.q, a, head), first, M, a.length);
    prefetch_rows<D>(head_of<D>(a.k, a, head), 0, FIRST, keys);
    prefetch_rows<D>(head_of<D>(a.v, a, head), 0, FIRST, keys);
  }
  if (threadIdx.x == 0) {
    prefetch_map(&maps.q), prefetch_map(&maps.k), prefetch_map(&maps.v);
    barrier_init(&m.q_here, 1);
    for (int g = 0; g < P::GROUPS; ++g)
      for (int i = 0; i < SLOTS; ++i)
        barrier_init(&m.k_here[g][i], 1), barrier_init(&m.v_here[g][i], 1);
    barrier_init_fence();
  }
  __syncthreads();
  if (OVERLAP) let_next_kernel_start(), wait_for_earlier_kernels();

  const int part = group;
#include "part_of_keys.cuh"  // rows: the block's, against the keys of this part

  splitk::leave(m.part[group], rows, row, lane);
  __syncthreads();
  splitk::combine<D, M, PARTS, P::THREADS>([&](int p, int) -> auto& { return m.part[p]; },
                                           head_of<D>(a.o, a, head), first, a.length, threadIdx.x);
}

template <class P>
cudaError_t start(const Attention& a, cudaStream_t stream, bool early) {
  Maps maps;
  if (cudaError_t e = tensor_map(&maps.q, a.q, P::D, a, M)) return e;
  if (cudaError_t e = tensor_map(&maps.k, a.k, P::D, a, P::KEYS)) return e;
  if (cudaError_t e = tensor_map(&maps.v, a.v, P::D, a, P::KEYS)) return e;
  return launch<champion<P>>({dim3(ceil_div(a.length, M), a.heads), P::THREADS,
                              sizeof(typename P::Shared), 1, early},
                             stream, a, maps);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  const bool early = OVERLAP == 2 ? OwnLast::is_ahead(args->stream) : OVERLAP;
  int result = on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    constexpr bool EARLY = OVERLAP != 0;
    int sms = 0;
    if (cudaError_t e = device_attribute<cudaDevAttrMultiProcessorCount>(&sms)) return e;
    bool alone =
        2 * ceil_div(a.length, M) * a.heads > sms;  // two blocks for the same rows: too many
    if constexpr (D == 128)
      return alone ? start<Plan<128, 2, 64, 2>>(a, args->stream, early)
                   : merged::start<merged::Plan<128, 64, false>, EARLY>(a, args->stream, early);
    else if (alone)
      return start<Plan<64, 2, 128, 2>>(a, args->stream, early);
    else if (a.length <= 256)
      return merged::start<merged::Plan<64, 64, true>, EARLY>(a, args->stream, early);
    else
      return merged::start<merged::Plan<64, 128, false>, EARLY>(a, args->stream, early);
  });
  if (OVERLAP == 2 && result == cudaSuccess) OwnLast::remember(args->stream);
  return result;
}
