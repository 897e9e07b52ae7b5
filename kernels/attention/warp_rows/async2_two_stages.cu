/* Two tiles in flight, waited for when they are needed.

   v2cv6b with a ring of two tiles and cp.async by all warps: the wait at the top of the loop is for a
   copy that has had the whole tile before to arrive. What v2cv7a promised. long_scoreboard falls by
   half or more, one barrier a tile goes; time falls by what the loads used to cost, which is little
   beside the round trips through shared memory.

   What came: a warp of v2cv6b spent 7 % of its time on loads, too little for the rule
   long-scoreboard to fire, and spends 5 % here. Barriers halve, and time falls by 2 %: there was
   next to nothing to hide.

   after: v2cv6b      arch: 80+
   moves: inst_barrier<0.6x      moves-not: stall_long_scoreboard<0.5x
   budget: regs=255 smem=165K spills=0 stack=0
*/
#include "../../common/cp_async.cuh"
#include "sixteen_rows.cuh"

using namespace v2c;
constexpr int STAGES = 2;

template <int D>
__global__ void __launch_bounds__(THREADS, 1) async2(Attention a) {
  auto& m = shared_memory<Shared<D, STAGES>>();
  int warp = threadIdx.x / 32, first = blockIdx.x * M, head = blockIdx.y;
  int row = warp * ROWS;  // of this warp
  const half *k = head_of<D>(a.k, a, head), *v = head_of<D>(a.v, a, head);
  auto fetch = [&](int key) {
    if (key < a.keys(first + M)) {
      copy_rows<THREADS>(m.k[key / N % STAGES], k, key, a.length, threadIdx.x);
      copy_rows<THREADS>(m.v[key / N % STAGES], v, key, a.length, threadIdx.x);
    }
    cp_async_commit();  // an empty group past the last tile
  };

  load_rows<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length);
  if (warp < WORKERS) clear<ROWS, D>(m.out, m.stats, row);

  for (int tile = 0; tile < STAGES - 1; ++tile) fetch(tile * N);

  for (int tile = 0; tile < a.keys(first + M); tile += N) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // this tile is here, and the one before is used up
    fetch(tile + (STAGES - 1) * N);
    attend<D, LaneSoftmax>(a, m, m.k[tile / N % STAGES], m.v[tile / N % STAGES], first, tile);
  }
  if (warp < WORKERS)
    store_rows<ROWS, D>(a, head_of<D>(a.o, a, head), m.out, m.stats, row, first + row);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    constexpr size_t BYTES = sizeof(Shared<D, STAGES>);
    return launch<async2<D>>({dim3(ceil_div(a.length, M), a.heads), THREADS, BYTES}, args->stream, a);
  });
}
