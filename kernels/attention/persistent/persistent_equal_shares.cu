/* As many blocks as SMs, each with an equal share of the rows.

   tailwave with one block per SM that loops: the rows of all heads are cut into strips of 16, and each
   block takes the same number of neighbouring strips, up to four (one a warp) at a time. No block is
   left over, so waves are 1.00 and the tail is recovered: at B 256 strips on 132 SMs are at most two
   a block, side by side, where tailwave needed two rounds. What a static share cannot do is weigh
   strips: with a causal mask the late strips of a head cost more, and neighbours are late together.

   What came: 1.7 times at B; at A, said of it too, slower than tailwave. There 16 heads of 16 strips
   leave four of the 132 blocks with strips of two heads, which it does one after the other: those take
   twice as long, SMs are active 45 % of the time, and workload-imbalance fires for it and not before.
   At B a share never has strips of two heads. Equal in count is not equal in work.

   after: tailwave      fixes: tail-effect      arch: 80+      case: B
   moves: waves<1x sm_active>1.2x
   budget: regs=255 smem=227K spills=0 stack=0
*/
#include "rows_of_a_block.cuh"

template <int D>
__global__ void __launch_bounds__(THREADS, 1) persistent(Attention a) {
  auto& m = shared_memory<Shared<D>>();
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int strips_a_head = ceil_div(a.length, 16);
  long long strips = static_cast<long long>(strips_a_head) * a.heads;
  long long strip = strips * blockIdx.x / gridDim.x, last = strips * (blockIdx.x + 1) / gridDim.x;

  while (strip < last) {  // up to M / 16 strips of one head at a time
    int head = static_cast<int>(strip / strips_a_head),
        begin = static_cast<int>(strip % strips_a_head);
    int count = min(M / 16, strips_a_head - begin);
    if (count > last - strip) count = static_cast<int>(last - strip);
    int first = 16 * begin, end = min(first + 16 * count, a.length);
    strip += count;
    attend<D>(a, m, head, first, end, lane, warp);
    __syncthreads();  // Q and the ring are used up
  }
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    int sms = 0, shared = 0;
    if (int e = one_block_an_sm<D>(&sms, &shared)) return e;
    return int{
        launch<persistent<D>>({dim3(sms), THREADS, static_cast<size_t>(shared)}, args->stream, a)};
  });
}
