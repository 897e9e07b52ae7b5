/* P V on the tensor cores too.

   Probabilities go to shared memory as halves, each warp multiplies 16 rows by half of V, and the
   product comes back through a scratch of 2 KB a warp, from where it is added to the output. 64
   reads and multiply-adds a lane, row and tile become a few tensor instructions and a round trip of
   the scratch: shared-memory wavefronts fall by several times, tensor instructions double, FFMA all
   but vanish. The price is 10 KB: on an L4 two blocks per SM instead of three, and the 128 blocks of
   B are then 1.10 waves, that is, two rounds. On an H200 five fit and B never fills one wave.

   What came: all but the wavefronts, which fall to 0.63 only. Three in four of those left are bank
   conflicts, so a kernel that waited for answers now fills shared memory: the bound goes from latency
   to memory. short-scoreboard is gone in name, two thirds of the time is still spent there.

   after: stage1      fixes: short-scoreboard      arch: 80+
   moves: inst_matrix~2x inst_ffma<0.1x blocks_per_sm<0.9x      moves-not: shared_wavefronts<0.5x
   budget: regs=128 smem=70K spills=0 stack=0
*/
#include "../../common/cp_async.cuh"
#include "stage.cuh"

using namespace stage;
constexpr int STAGES = 2;

template <int D>
struct Shared {
  Tile<half, M, D> q;
  Tile<half, N, D> k[STAGES], v[STAGES];
  Tile<float, M, N> s;
  Tile<half, M, N> p;
  Tile<float, 16, 32> scratch[WARPS];
  Tile<float, M, D> out;
};

template <int D>
__global__ void __launch_bounds__(THREADS, 5) stage2(Attention a) {
  auto& m = shared_memory<Shared<D>>();
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * M, head = blockIdx.y;
  const half *k = head_of<D>(a.k, a, head), *v = head_of<D>(a.v, a, head);
  int tiles = ceil_div(a.keys(first + M), N);
  auto fetch = [&](int tile) {
    if (tile < tiles) {
      copy_rows<THREADS>(m.k[tile % STAGES], k, tile * N, a.length, threadIdx.x);
      copy_rows<THREADS>(m.v[tile % STAGES], v, tile * N, a.length, threadIdx.x);
    }
    cp_async_commit();  // an empty group past the last tile
  };

  Softmax state;
  clear(m.out, D);
  copy_rows<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length, threadIdx.x);
  for (int tile = 0; tile < STAGES - 1; ++tile) fetch(tile);

  for (int tile = 0; tile < tiles; ++tile) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // this tile is here, and the one before is used up
    fetch(tile + STAGES - 1);
    scores(m.q, m.k[tile % STAGES], m.s, D);
    __syncthreads();

#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      int row = warp + WARPS * i;
      float p =
          softmax_row(a, state, i, m.out, *m.s.at(row, lane), row, first + row, tile * N + lane, D);
      *m.p.at(row, lane) = __float2half(p);
    }
    __syncthreads();
    tensor_pv(m.p, m.v[tile % STAGES], m.scratch[warp], m.out, D);
  }
  __syncthreads();
  store(a, state, m.out, head_of<D>(a.o, a, head), first, D);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return launch<stage2<D>>({dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(Shared<D>)},
                             args->stream, a);
  });
}
