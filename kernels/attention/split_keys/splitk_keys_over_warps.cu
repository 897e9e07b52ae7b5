/* Keys split over eight warps, all of K and V in one shot, one combine.

   At A and B the machine is idle because 64 rows a block are 64 blocks for 132 SMs, each walking
   through the keys in series. Here a block has 32 rows, so 128 blocks cover 97 % of the SMs, and each
   of its eight warps takes an eighth of the keys: 64 at B, 32 at A. No warp waits for another until
   the end: it copies its own keys, multiplies K while V is on its way, needs one maximum and no
   rescaling, and leaves its part of the output in shared memory, on top of its own K and V, for one
   barrier and one sum over the warps. Longer sequences go in rounds; the next K is copied while the
   softmax runs, the next V while the next scores do.

   Against exp2fold: SMs in use 48 to 97 %, barriers to two in all, no rescaling of the output. Each
   block reads all of K and V, so L2 to SM traffic doubles (17 MB at B): that is the next limit.

   after: exp2fold      fixes: grid-too-small      arch: 80+
   moves: sm_active>1.4x l2_to_l1_bytes~1.9x
   budget: regs=255 smem=140K spills=0 stack=0
*/
#include "../../common/splitk.cuh"

constexpr int WARPS = 8, THREADS = 32 * WARPS;

// KEYS: keys a warp and round. STRIPS: of 16 rows.
template <int D, int KEYS, int STRIPS>
struct Shared {
  static constexpr int ROWS = 16 * STRIPS;
  union Slice {  // a warp's own
    struct {
      Tile<half, KEYS, D, Swizzled> k, v;
    };
    splitk::Part<ROWS, D> part;
  };
  Slice slice[WARPS];
  Tile<half, ROWS, D, Swizzled> q;
};

template <int D, int KEYS, int STRIPS>
__global__ void __launch_bounds__(THREADS, 1) split_keys(Attention a) {
  auto& m = shared_memory<Shared<D, KEYS, STRIPS>>();
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y;
  int first = blockIdx.x * 16 * STRIPS, keys = a.keys(first + 16 * STRIPS);
  const half *k = head_of<D>(a.k, a, head), *v = head_of<D>(a.v, a, head);
  auto& mine = m.slice[warp];
  int key = warp * KEYS;  // of this warp's first round

  copy_rows<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length, threadIdx.x);
  cp_async_commit();
  if (key < keys) copy_rows<32>(mine.k, k, key, a.length, lane);
  cp_async_commit();
  if (key < keys) copy_rows<32>(mine.v, v, key, a.length, lane);
  cp_async_commit();

  cp_async_wait<2>();
  __syncthreads();  // Q is here
  flash::Folded folded(a.scale);
  flash::Rows<D> rows[STRIPS];
#pragma unroll
  for (int i = 0; i < STRIPS; ++i) {
    rows[i].clear();
    rows[i].load(m.q, 16 * i, lane);
    folded.apply_sign(rows[i].q);
  }

  for (int round = 0; key < keys; ++round) {
    int next = key + WARPS * KEYS;
    float s[STRIPS][KEYS / 8][4];
    cp_async_wait<1>();
    __syncwarp();  // this warp's K is here; its V may still be on its way
#pragma unroll
    for (int i = 0; i < STRIPS; ++i) flash::scores<KEYS, D>(s[i], rows[i].q, mine.k, 0, lane);
    __syncwarp();  // K is used up
    if (next < keys) copy_rows<32>(mine.k, k, next, a.length, lane);
    cp_async_commit();
#pragma unroll
    for (int i = 0; i < STRIPS; ++i) {
      if (flash::at_edge<KEYS>(a, first + 16 * i, key))
        flash::mask<KEYS>(a, s[i], first + 16 * i, key, lane);
      splitk::softmax<KEYS>(rows[i], s[i], folded.factor, round == 0);
    }
    cp_async_wait<1>();
    __syncwarp();  // V is here
#pragma unroll
    for (int i = 0; i < STRIPS; ++i) flash::pv<KEYS, D>(rows[i].out, s[i], mine.v, 0, lane);
    __syncwarp();  // V is used up
    if (next < keys) copy_rows<32>(mine.v, v, next, a.length, lane);
    cp_async_commit();
    key = next;
  }

  __syncwarp();  // this warp's keys are used up
#pragma unroll
  for (int i = 0; i < STRIPS; ++i) splitk::leave(mine.part, rows[i], 16 * i, lane);
  __syncthreads();
  splitk::combine<D, 16 * STRIPS, WARPS, THREADS>(
      [&](int warp, int) -> auto& { return m.slice[warp].part; }, head_of<D>(a.o, a, head), first,
      a.length, threadIdx.x);
}

template <int D, int KEYS, int STRIPS>
int start(const Attention& a, cudaStream_t stream) {
  return launch<split_keys<D, KEYS, STRIPS>>(
      {dim3(ceil_div(a.length, 16 * STRIPS), a.heads), THREADS, sizeof(Shared<D, KEYS, STRIPS>)},
      stream, a);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value, STRIPS = 128 / D;  // the output has to fit the registers
    int shared = 0;
    if (int e = device_attribute<cudaDevAttrMaxSharedMemoryPerBlockOptin>(&shared)) return e;
    bool wide =
        a.length > WARPS * 32 && sizeof(Shared<D, 64, STRIPS>) <= static_cast<size_t>(shared);
    return wide ? start<D, 64, STRIPS>(a, args->stream) : start<D, 32, STRIPS>(a, args->stream);
  });
}
