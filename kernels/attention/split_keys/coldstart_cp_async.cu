/* inseries that fetches with cp.async, for a call that finds a cold L2: a negative.

   TMA reads a tensor map before it reads a tensor. In a row of calls on the same arrays the maps of Q, K
   and V are warm; after another kernel has gone through L2 they come from DRAM, and the tensors only
   after them: two trips where splitk, which needs no map, makes one. inseries loses 0.8 us at A from warm
   to cold, splitk 0.4. Here the threads copy 16 bytes each, swizzled as TMA would, and the rest is
   inseries: same parts, same merge, launched after the kernel before has ended.

   Expected before it was measured: cold 0.3 to 0.5 us faster than inseries at A, B and V, the trip to the
   map; warm no faster, since 20 instructions of address arithmetic a thread replace one TMA.

   What came: the other way. Warm 4.22 us at A where inseries takes 4.03 in the same run, 4.98 and 4.50 at
   B, 6.58 and 5.82 at V; cold 5.2 and 4.7, 6.4 and 5.7, 7.9 and 8.0 (one run, spread not known). The map is
   prefetched while barriers are set up, and ten copies a thread with their addresses take longer than what
   is left of that trip; TMA's are on their way after one thread has run a few instructions.

   racecheck names a write of pass_on and a read of merge_into at S128-causal, where one warpgroup of a block
   has keys and the other none. In the machine code the block's barrier stands between the two on every
   path, as in inseries, which is clean there; one more in front of pass_on changes nothing. What differs is
   that one warpgroup has gone through two named barriers more than the other by then.

   after: inseries      arch: 90a      case: A      moves: instructions>1.05x
   budget: regs=255 smem=227K spills=0 stack=0
*/
#include "merged.cuh"

// ROWS rows from `row` of a head of D columns, as the slabs that TMA would fill, by THREADS threads.
template <int THREADS, int ROWS, int D>
__device__ __forceinline__ void copy_slabs(Slabs<ROWS, D>& slabs, const half* head, int row, int length,
                                           int thread) {
#pragma unroll
  for (int i = 0; i < D / 64; ++i)
    copy_rows<THREADS>(slabs.slab[i], head + 64 * i, row, length, thread, D);
}
// All but PENDING of this thread's groups are here, and wgmma may read what came.
template <int PENDING>
__device__ __forceinline__ void copied() {
  cp_async_wait<PENDING>();
  fence_for_async();
}

// As merged::merged_parts.
template <class P>
__global__ void __launch_bounds__(merged::THREADS, 1) pairs(Attention a) {
  constexpr int D = P::D, KEYS = P::KEYS, BOXES = P::BOXES, M = merged::M;
  auto& m = shared_memory<typename P::Shared>();
  const int lane = threadIdx.x % 32, group = threadIdx.x / 128, strip = threadIdx.x / 32 % 4;
  const int thread = threadIdx.x % 128, rank = cluster_rank(), part = rank * merged::GROUPS + group;
  const int first = blockIdx.x / merged::CLUSTER * M, head = blockIdx.y, row = first + 16 * strip;
  const int slices = ceil_div(a.keys(first + M), KEYS);
  const half *k = head_of<D>(a.k, a, head), *v = head_of<D>(a.v, a, head);
  auto& tile = m.slot[group];
  auto fetch = [&](Slabs<64, D>(&boxes)[BOXES], const half* from, int slice) {
    if (slice < slices)
#pragma unroll
      for (int b = 0; b < BOXES; ++b)
        copy_slabs<128>(boxes[b], from, slice * KEYS + 64 * b, a.length, thread);
    cp_async_commit();  // an empty group where there is nothing
  };

  copy_slabs<merged::THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length, threadIdx.x);
  fetch(tile.k, k, part);
  fetch(tile.v, v, part);
  if (threadIdx.x == 0) merged::init_barriers<P>(m);
  __syncwarp();
  cluster_arrive_relaxed();

  flash::Folded folded(a.scale);
  flash::Rows<D> rows;
  rows.clear();
  copied<1>();
  __syncthreads();  // Q is here, and this group's first K
  if (folded.sign) {
    warpgroup::apply_sign(m.q, folded.sign, threadIdx.x, merged::THREADS);
    __syncthreads();
  }

  int round = 0;
  for (int slice = part; slice < slices; slice += merged::PARTS, ++round) {
    float s[BOXES][8][4], offset[2];
    uint32_t p[BOXES][4][4];
    if (round > 0) copied<1>(), named_barrier(1 + group, 128);
#pragma unroll
    for (int b = 0; b < BOXES; ++b) {
      wgmma_fence();
      warpgroup::start_scores<64, D>(s[b], m.q, 0, tile.k[b]);
      wgmma_commit();
    }
    wgmma_wait<0>();
#pragma unroll
    for (int b = 0; b < BOXES; ++b) hold(s[b]);
    copied<0>();
    named_barrier(1 + group, 128);  // V is here, and all are done with K
    fetch(tile.k, k, slice + merged::PARTS);
    if (flash::at_edge<KEYS>(a, row, slice * KEYS)) {
#pragma unroll
      for (int b = 0; b < BOXES; ++b) flash::mask<64>(a, s[b], row, slice * KEYS + 64 * b, lane);
    }
    merged::raise_max<BOXES>(rows, s, folded.factor, round == 0, offset);
    hold(rows.out);
#pragma unroll
    for (int b = 0; b < BOXES; ++b) {  // the products of a box run beside the exponentials of the next
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          rows.sum[i / 2] += s[b][n][i] =
              exp2_approx(fmaf(s[b][n][i], folded.factor, offset[i / 2]));
      warpgroup::pack_probabilities<64>(p[b], s[b]);
      wgmma_fence();
      warpgroup::start_pv<64, D>(rows.out, p[b], tile.v[b]);
      wgmma_commit();
    }
    wgmma_wait<0>();
    hold(rows.out);
    if (slice + merged::PARTS < slices) named_barrier(1 + group, 128);  // all are done with V
    fetch(tile.v, v, slice + merged::PARTS);
  }
  cp_async_wait<0>();

  Stats stats = {{rows.max[0], rows.max[1]}, {rows.sum[0], rows.sum[1]}};
  if (group == 0)
    merged::pass_on<0, P>(m, rows.out, stats, strip);
  else
    merged::pass_on<1, P>(m, rows.out, stats, strip);
  __syncthreads();
  if (group == 0)
    merged::finish<0, P>(a, m, rows.out, stats, strip, row, head);
  else
    merged::finish<1, P>(a, m, rows.out, stats, strip, row, head);
}

// 64 rows by one block, as in champion: where blocks suffice. Two slices a group are on their way.
template <int D_, int KEYS_>
struct Alone {
  static constexpr int D = D_, KEYS = KEYS_, M = 64, GROUPS = 2, SLOTS = 2, THREADS = 128 * GROUPS;
  struct Slot {
    Slabs<KEYS, D> k, v;
  };
  struct Shared {
    Slabs<M, D> q;
    Slot slot[GROUPS][SLOTS];
    splitk::Part<M, D> part[GROUPS];
  };
};

template <class P>
__global__ void __launch_bounds__(P::THREADS, 1) alone(Attention a) {
  constexpr int D = P::D, KEYS = P::KEYS, M = P::M, SLOTS = P::SLOTS, PARTS = P::GROUPS;
  auto& m = shared_memory<typename P::Shared>();
  const int thread = threadIdx.x % 128, lane = threadIdx.x % 32, group = threadIdx.x / 128;
  const int first = blockIdx.x * M, head = blockIdx.y, row = thread / 32 * 16;
  const int slices = ceil_div(a.keys(first + M), KEYS);
  const half *k = head_of<D>(a.k, a, head), *v = head_of<D>(a.v, a, head);
  auto fetch = [&](Slabs<KEYS, D>& tile, const half* from, int slice) {
    if (slice < slices) copy_slabs<128>(tile, from, slice * KEYS, a.length, thread);
    cp_async_commit();
  };

  copy_slabs<P::THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length, threadIdx.x);
#pragma unroll
  for (int i = 0; i < SLOTS; ++i) {
    fetch(m.slot[group][i].k, k, group + i * PARTS);
    fetch(m.slot[group][i].v, v, group + i * PARTS);
  }
  flash::Folded folded(a.scale);
  flash::Rows<D> rows;
  rows.clear();
  copied<2 * SLOTS - 1>();
  __syncthreads();  // Q is here
  if (folded.sign) {
    warpgroup::apply_sign(m.q, folded.sign, threadIdx.x, P::THREADS);
    __syncthreads();
  }

  int round = 0;
  for (int slice = group; slice < slices; slice += PARTS, ++round) {
    const int later = slice + SLOTS * PARTS;
    auto& tile = m.slot[group][round % SLOTS];
    float s[KEYS / 8][4];
    uint32_t p[KEYS / 16][4];
    copied<2 * SLOTS - 1>();
    named_barrier(1 + group, 128);  // K is here
    wgmma_fence();
    warpgroup::start_scores<KEYS, D>(s, m.q, 0, tile.k);
    wgmma_commit();
    wgmma_wait<0>();
    hold(s);
    copied<2 * SLOTS - 2>();
    named_barrier(1 + group, 128);  // V is here, and all are done with K
    fetch(tile.k, k, later);
    if (flash::at_edge<KEYS>(a, first + row, slice * KEYS))
      flash::mask<KEYS>(a, s, first + row, slice * KEYS, lane);
    splitk::softmax<KEYS>(rows, s, folded.factor, round == 0);
    warpgroup::pack_probabilities<KEYS>(p, s);
    hold(rows.out);
    wgmma_fence();
    warpgroup::start_pv<KEYS, D>(rows.out, p, tile.v);
    wgmma_commit();
    wgmma_wait<0>();
    hold(rows.out);
    if (later < slices) named_barrier(1 + group, 128);  // all are done with V
    fetch(tile.v, v, later);
  }
  cp_async_wait<0>();

  splitk::leave(m.part[group], rows, row, lane);
  __syncthreads();
  splitk::combine<D, M, PARTS, P::THREADS>([&](int p, int) -> auto& { return m.part[p]; },
                                           head_of<D>(a.o, a, head), first, a.length, threadIdx.x);
}

template <class P>
cudaError_t start_pairs(const Attention& a, cudaStream_t stream) {
  const unsigned blocks = ceil_div(a.length, merged::M) * merged::CLUSTER;
  return launch<pairs<P>>({dim3(blocks, a.heads), merged::THREADS, P::BYTES, merged::CLUSTER}, stream,
                          a);
}
template <class P>
cudaError_t start_alone(const Attention& a, cudaStream_t stream) {
  return launch<alone<P>>(
      {dim3(ceil_div(a.length, P::M), a.heads), P::THREADS, sizeof(typename P::Shared)}, stream, a);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    int sms = 0;
    if (cudaError_t e = device_attribute<cudaDevAttrMultiProcessorCount>(&sms)) return e;
    if (2 * ceil_div(a.length, merged::M) * a.heads > sms)  // two blocks for the same rows: too many
      return start_alone<Alone<D, 8192 / D>>(a, args->stream);
    if constexpr (D == 128)
      return start_pairs<merged::Plan<128, 64, false>>(a, args->stream);
    else if (a.length <= 256)
      return start_pairs<merged::Plan<64, 64, true>>(a, args->stream);
    else
      return start_pairs<merged::Plan<64, 128, false>>(a, args->stream);
  });
}
