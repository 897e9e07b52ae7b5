/* A swizzle of the wrong bits: a negative.

   stage2 whose tiles store chunk c of row r in row r XOR (c mod 4), at place c. It looks like a
   swizzle and costs like one. But rows are 128 bytes, so the banks of an element depend on its place
   in the row and not on the row: eight rows of one chunk share four banks before and after. Bank
   conflicts and time stay where they are; only integer instructions are added.

   after: stage2      fixes-not: shared-bank-conflicts      arch: 80+
   moves: shared_ld_conflicts~1x
   budget: regs=128 smem=70K spills=0 stack=0
*/
#include "../../common/cp_async.cuh"
#include "stage.cuh"

using namespace stage;
constexpr int STAGES = 2;

template <int D>
struct Shared {
  Tile<half, M, D, RowXor> q;
  Tile<half, N, D, RowXor> k[STAGES], v[STAGES];
  Tile<float, M, N, RowXor> s;
  Tile<half, M, N, RowXor> p;
  Tile<float, 16, 32, RowXor> scratch[WARPS];
  Tile<float, M, D> out;
};

template <int D>
__global__ void __launch_bounds__(THREADS, 5) stage2rowxor(Attention a) {
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
    return launch<stage2rowxor<D>>(
        {dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(Shared<D>)}, args->stream, a);
  });
}
