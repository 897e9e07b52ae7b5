/* The design that never worked, working: registers, two stages, persistent blocks, 16-byte loads.

   What V3 set out to be, in one step from v2: K and V tiles by cp.async two stages deep in 16-byte
   pieces, Q, scores, softmax and output in registers, and a grid that fills the machine once and
   loops. Shared-memory wavefronts fall by several times against v2, barriers from six to one a tile,
   long_scoreboard and barrier stalls with them; the kernel is limited by the grid at A and B and by
   tensor and issue at C.

   The forerunner kept Q private to each lane and summed over it as if it were whole (correlation
   with the truth 0.65), read tiles that were still arriving (waiting for all but the newest group
   before the next was committed), and left rows to no warp where rows did not divide by warps. Here
   fragments say who holds what, a commit follows every tile, and what does not divide does not compile.

   after: v2      fixes: barrier-wait      arch: 80+
   moves: shared_wavefronts<0.3x inst_barrier<0.4x
   budget: regs=255 smem=227K spills=0 stack=0
   tune: BLOCK_M=64,16,32,128 BLOCK_N=64,16,32,48,96,128 WARPS=4,1,2,8 STAGES=2,3,4,5
   where: BLOCK_M % (16 * WARPS) == 0
   takes: threads=32*WARPS smem=256*BLOCK_M+512*BLOCK_N*STAGES strips=BLOCK_M//(16*WARPS)
   takes: regs=48*strips+BLOCK_N//2
   steer: grid-too-small=BLOCK_M- tail-effect=BLOCK_M- occupancy-shared=smem-
   steer: occupancy-registers=regs- barrier-wait=WARPS- long-scoreboard=STAGES+
   steer: fixed-latency=strips+ short-scoreboard=BLOCK_N+
   watch: stall_long_scoreboard- stall_barrier- sm_active+
*/
#include "../../common/flash.cuh"

#ifndef BLOCK_M
#define BLOCK_M 64  // queries a block
#endif
#ifndef BLOCK_N
#define BLOCK_N 64  // keys a tile
#endif
#ifndef WARPS
#define WARPS 4
#endif
#ifndef STAGES
#define STAGES 2  // tiles in the ring
#endif
constexpr int THREADS = 32 * WARPS, STRIPS = BLOCK_M / (16 * WARPS);  // of 16 rows, a warp
static_assert(BLOCK_M % (16 * WARPS) == 0 && STRIPS >= 1, "each warp owns whole strips of 16 rows");
static_assert(BLOCK_N % 16 == 0, "a tile is whole mma.sync blocks of 16 keys");
static_assert(STAGES >= 2, "with one slot there is no room to copy into while a tile is used");

template <int D>
struct Shared {
  Tile<half, BLOCK_M, D, Swizzled> q;
  Tile<half, BLOCK_N, D, Swizzled> k[STAGES], v[STAGES];
};
static_assert(sizeof(Shared<64>) <= 227 * 1024, "more shared memory than an SM has");

template <int D>
__global__ void __launch_bounds__(THREADS, 1) v3(Attention a) {
  auto& m = shared_memory<Shared<D>>();
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, blocks_a_head = ceil_div(a.length, BLOCK_M);

  for (int work = blockIdx.x; work < blocks_a_head * a.heads; work += gridDim.x) {
    int first = work % blocks_a_head * BLOCK_M, head = work / blocks_a_head;
    const half *k = head_of<D>(a.k, a, head), *v = head_of<D>(a.v, a, head);
    int tiles = ceil_div(a.keys(first + BLOCK_M), BLOCK_N);
    auto fetch = [&](int tile) {
      if (tile < tiles) {
        copy_rows<THREADS>(m.k[tile % STAGES], k, tile * BLOCK_N, a.length, threadIdx.x);
        copy_rows<THREADS>(m.v[tile % STAGES], v, tile * BLOCK_N, a.length, threadIdx.x);
      }
      cp_async_commit();  // an empty group past the last tile
    };

    copy_rows<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length, threadIdx.x);
    for (int tile = 0; tile < STAGES - 1; ++tile) fetch(tile);
    flash::Rows<D> rows[STRIPS];
#pragma unroll
    for (int i = 0; i < STRIPS; ++i) rows[i].clear();

    for (int tile = 0; tile < tiles; ++tile) {
      cp_async_wait<STAGES - 2>();
      __syncthreads();  // this tile is here, and the one before is used up
      fetch(tile + STAGES - 1);
#pragma unroll
      for (int i = 0; i < STRIPS; ++i) {
        int row = 16 * (warp * STRIPS + i);
        if (tile == 0) rows[i].load(m.q, row, lane);
        float s[BLOCK_N / 8][4];
        flash::scores<BLOCK_N, D>(s, rows[i].q, m.k[tile % STAGES], 0, lane);
        flash::scale_scores(s, a.scale);
        if (flash::at_edge<BLOCK_N>(a, first + row, tile * BLOCK_N))
          flash::mask<BLOCK_N>(a, s, first + row, tile * BLOCK_N, lane);
        flash::softmax<BLOCK_N>(rows[i], s);
        flash::pv<BLOCK_N, D>(rows[i].out, s, m.v[tile % STAGES], 0, lane);
      }
    }
#pragma unroll
    for (int i = 0; i < STRIPS; ++i)
      rows[i].store(head_of<D>(a.o, a, head), first + 16 * (warp * STRIPS + i), a.length, lane);
    __syncthreads();  // Q and the ring are used up
  }
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    int resident = 0, blocks = ceil_div(a.length, BLOCK_M) * a.heads;
    if (int e = resident_blocks<v3<D>>(THREADS, sizeof(Shared<D>), &resident)) return e;
    return int{
        launch<v3<D>>({dim3(blocks < resident ? blocks : resident), THREADS, sizeof(Shared<D>)},
                      args->stream, a)};
  });
}
