/* Scores, probabilities and output stay in registers; only K and V are in shared memory.

   The big one. Each warp owns 16 whole rows, so a row's maximum and sum need two shuffles within a
   quad and nobody else. mma.sync says which lane holds which element, so the softmax works on the
   accumulators, and packed to halves they are the left operand of P V in place. Per tile S, P, the
   scratch and the output no longer cross shared memory: wavefronts fall by five times or more, one
   barrier a tile instead of three. 64 rows a block and 64 keys a tile, since there is room now.
   K and V are swizzled as in stage2swizzle: at this speed the conflicts would hide everything else.

   Its forerunner cost the record twelve hours and never gave a right value, for two reasons that a
   test finds in a second. It read WMMA accumulators through a table in scan order, which swapped the
   two off-diagonal 8x8 quadrants (the layout test compares acc_row and acc_col with the PTX manual,
   and swapping two slots must fail it). And two warps each held half of every row and both updated
   its maximum and sum (a race detector names the line).

   The prediction named barriers as what goes. Barriers do fall, to a twelfth, but stage2 spent 2 % of
   its warps' time there: what the counters named on it were shared memory and its bank conflicts.
   Both are gone (and half of the exponentials), wavefronts fall by 22 times and time by 7; what
   is left is a grid of 64 blocks on 132 SMs.

   after: stage2      fixes: shared-bandwidth shared-bank-conflicts      arch: 80+
   moves: shared_wavefronts<0.2x inst_barrier<0.34x
   budget: regs=255 smem=80K spills=0 stack=0
*/
#include "../../common/flash.cuh"

constexpr int M = 64, N = 64, STAGES = 2, THREADS = 128;

template <int D>
struct Shared {
  Tile<half, M, D, Swizzled> q;
  Tile<half, N, D, Swizzled> k[STAGES], v[STAGES];
};

template <int D>
__global__ void __launch_bounds__(THREADS, 1) stage3b(Attention a) {
  auto& m = shared_memory<Shared<D>>();
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * M, head = blockIdx.y;
  const half *k = head_of<D>(a.k, a, head), *v = head_of<D>(a.v, a, head);
  int tiles = ceil_div(a.keys(first + M), N), row = first + 16 * warp;
  auto fetch = [&](int tile) {
    if (tile < tiles) {
      copy_rows<THREADS>(m.k[tile % STAGES], k, tile * N, a.length, threadIdx.x);
      copy_rows<THREADS>(m.v[tile % STAGES], v, tile * N, a.length, threadIdx.x);
    }
    cp_async_commit();  // an empty group past the last tile
  };

  copy_rows<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length, threadIdx.x);
  for (int tile = 0; tile < STAGES - 1; ++tile) fetch(tile);
  flash::Rows<D> rows;
  rows.clear();

  for (int tile = 0; tile < tiles; ++tile) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // this tile is here, and the one before is used up
    fetch(tile + STAGES - 1);
    if (tile == 0) rows.load(m.q, 16 * warp, lane);

    float s[N / 8][4];
    flash::scores<N, D>(s, rows.q, m.k[tile % STAGES], 0, lane);
    flash::scale_scores(s, a.scale);
    if (flash::at_edge<N>(a, row, tile * N)) flash::mask<N>(a, s, row, tile * N, lane);
    flash::softmax<N>(rows, s);
    flash::pv<N, D>(rows.out, s, m.v[tile % STAGES], 0, lane);
  }
  rows.store(head_of<D>(a.o, a, head), row, a.length, lane);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return launch<stage3b<D>>({dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(Shared<D>)},
                              args->stream, a);
  });
}
