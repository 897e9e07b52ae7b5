/* A producer warp with cp.async that waits at once: a negative.

   v2cv6a with a ring of two tiles which one of the idle warps fills. It starts the copy of the next
   tile and then, like everybody, waits for all copies before the barrier that lets this tile be used:
   nothing is ever on its way while something is computed. LDG and STS become LDGSTS, long_scoreboard
   moves to barrier, the duration stays. The forerunner was reported as a gain of 1.01 times, taken with
   a timer that measured the host.

   What came: the duration does not stay, it grows by a fifth: one warp now copies what three idle ones
   did together, and all wait for it. Barriers took 45 % of the warps' time before and 47 % now: a tenth
   more would not have shown in a share that large.

   after: v2cv6a      fixes-not: barrier-wait      arch: 80+
   moves: inst_async_copy>1x stall_long_scoreboard<0.5x      moves-not: stall_barrier>1.1x
   budget: regs=255 smem=165K spills=0 stack=0
*/
#include "../../common/cp_async.cuh"
#include "sixteen_rows.cuh"

using namespace v2c;
constexpr int STAGES = 2, PRODUCER = 7;       // tiles in the ring, the warp that copies

template <int D>
__global__ void __launch_bounds__(THREADS, 1) v2cv7a(Attention a) {
  auto& m = shared_memory<Shared<D, STAGES>>();
  int warp = threadIdx.x / 32, first = blockIdx.x * M, head = blockIdx.y;
  int row = warp * ROWS;  // of this warp
  const half *k = head_of<D>(a.k, a, head), *v = head_of<D>(a.v, a, head);
  auto fetch = [&](int key) {
    if (warp != PRODUCER || key >= a.keys(first + M)) return;
    copy_rows<32>(m.k[key / N % STAGES], k, key, a.length, threadIdx.x % 32);
    copy_rows<32>(m.v[key / N % STAGES], v, key, a.length, threadIdx.x % 32);
    cp_async_commit();
  };

  load_rows<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length);
  if (warp < WORKERS) clear<ROWS, D>(m.out, m.stats, row);

  fetch(0);

  for (int tile = 0; tile < a.keys(first + M); tile += N) {
    __syncthreads();  // the tile before is used up
    fetch(tile + N);
    cp_async_wait<0>();  // for the next tile too: whatever was to overlap has been waited for
    __syncthreads();
    attend<D, RedundantSoftmax>(a, m, m.k[tile / N % STAGES], m.v[tile / N % STAGES], first, tile);
  }
  if (warp < WORKERS)
    store_rows<ROWS, D>(a, head_of<D>(a.o, a, head), m.out, m.stats, row, first + row);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    constexpr size_t BYTES = sizeof(Shared<D, STAGES>);
    return launch<v2cv7a<D>>({dim3(ceil_div(a.length, M), a.heads), THREADS, BYTES}, args->stream, a);
  });
}
