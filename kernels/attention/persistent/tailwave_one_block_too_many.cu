/* A grid that is a few blocks too many: a negative.

   stage3b with one block per SM (it asks for all the shared memory) and so many rows a block that the
   last wave has only a handful of blocks: 31 rows at B, 136 blocks on 132 SMs. Those few run alone
   while the rest of the machine is done: waves 1.03, and the kernel takes the time of two rounds. The
   record's V2c kernels did this without noticing: 71 KB of shared memory, 64 blocks on 58 SMs.

   It does fix what the counters said of stage3b: every SM has a block, and grid-too-small is gone. The
   kernel is 1.8 times slower all the same, and tail-effect fires in its place: a cause that goes is no
   gain if the change that removes it brings a larger one.

   after: stage3b      fixes: grid-too-small      arch: 80+
   moves: waves>1x
   budget: regs=255 smem=227K spills=0 stack=0
*/
#include "rows_of_a_block.cuh"

template <int D>
__global__ void __launch_bounds__(THREADS, 1) tailwave(Attention a, int rows_a_block) {
  auto& m = shared_memory<Shared<D>>();
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y;
  int first = blockIdx.x * rows_a_block, end = min(first + rows_a_block, a.length);
  attend<D>(a, m, head, first, end, lane, warp);
}

// Rows a block, at most M, for a grid that ends just after a full wave of `slots` blocks.
inline int rows_with_tail(int length, int heads, int slots) {
  int best = M, smallest = slots;
  for (int rows = M; rows >= 16; --rows) {
    int blocks = ceil_div(length, rows) * heads, tail = blocks % slots;
    if (blocks > slots && tail > 0 && tail < smallest) best = rows, smallest = tail;
  }
  return best;
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    int sms = 0, shared = 0;
    if (int e = one_block_an_sm<D>(&sms, &shared)) return e;
    int rows = rows_with_tail(a.length, a.heads, sms);
    return int{launch<tailwave<D>>(
        {dim3(ceil_div(a.length, rows), a.heads), THREADS, static_cast<size_t>(shared)},
        args->stream, a, rows)};
  });
}
