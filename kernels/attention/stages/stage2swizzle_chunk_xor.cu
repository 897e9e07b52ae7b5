/* Chunks swizzled by their row: no bank conflicts.

   stage2 whose tiles store the 16-byte chunk c of row r at place c XOR (r mod 8). ldmatrix reads one
   chunk of eight rows: with 128-byte rows these all lie in the same four banks (8 wavefronts), with
   the swizzle in all 32 (1 wavefront); tile.cuh counts that at compile time. Stores of scores and
   products gain the same way, and not a byte is added. Bank conflicts fall to about none. Whether
   time follows is the question: shared memory was busy, but the warps of stage2 wait more for
   barriers and for the softmax than for wavefronts.

   after: stage2      fixes: shared-bank-conflicts      arch: 80+
   moves: shared_ld_conflicts<0.1x shared_wavefronts<0.7x
   budget: regs=128 smem=70K spills=0 stack=0
*/
#include "../../common/cp_async.cuh"
#include "stage.cuh"

using namespace stage;
constexpr int STAGES = 2;

template <int D>
struct Shared {
  Tile<half, M, D, Swizzled> q;
  Tile<half, N, D, Swizzled> k[STAGES], v[STAGES];
  Tile<float, M, N, Swizzled> s;
  Tile<half, M, N, Swizzled> p;
  Tile<float, 16, 32, Swizzled> scratch[WARPS];
  Tile<float, M, D> out;
};

template <int D>
__global__ void __launch_bounds__(THREADS, 5) stage2swizzle(Attention a) {
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
    return launch<stage2swizzle<D>>(
        {dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(Shared<D>)}, args->stream, a);
  });
}
