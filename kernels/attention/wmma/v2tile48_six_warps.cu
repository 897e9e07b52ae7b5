/* 48 rows and 6 warps a block: more reuse of K and V, little gained.

   v2 with M = 48. Each K and V tile serves half as many blocks more rows, so bytes from L2 fall by a
   third and blocks by a third. Waiting stays: the same six barriers a tile, now for 192 threads of
   which 48 do the softmax. Shared memory a block grows by 40 %, which costs blocks per SM, and 512
   rows are 10.67 blocks of 48, so the last one of each head is mostly padding.

   192 threads do not divide a tile of 2048 elements. The forerunner took 2048 / 192 = 10 elements a
   thread and so never loaded rows 30 and 31 of any tile (error 1.5); here every loop strides by the
   thread count until the tile is done.

   after: v2      fixes-not: barrier-wait      arch: 80+
   moves: blocks_per_sm<0.9x
   budget: regs=128 smem=95K spills=0 stack=0
*/
#include "wmma_block.cuh"

constexpr int M = 48;

template <int D>
__global__ void __launch_bounds__(THREADS<M>) v2tile48(Attention a) {
  wmma_block<D, M>(a);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return launch<v2tile48<D>>({dim3(ceil_div(a.length, M), a.heads), THREADS<M>, sizeof(Shared<D, M>)},
                         args->stream, a);
  });
}
