/* splitk with TMA, and four blocks that share K and V: slower, because 30 clusters fit and not 32.

   Neighbouring blocks read the same K and V. As a cluster of four each asks for a quarter of it, and
   TMA writes every slice into all four. One instruction per slice replaces some forty copies and
   their addresses in every lane: LDGSTS is 0, instructions issued fall. Each slice has two barriers,
   one for K and one for V, so a warp starts on its keys as soon as they are there. Where 32 rows a
   block would be more blocks than SMs, a block has 64 rows, in two groups of four warps.

   The prediction was L2 to SM bytes down by 3.7 times and the fastest kernel at A and B. What came: a
   cluster has to lie in one GPC, an H200's GPCs do not all have a multiple of four SMs, and of
   clusters of four with one block per SM 30 fit at once (cudaOccupancyMaxActiveClusters). A, B and V
   have 32: the last two wait, and the kernel takes twice its time, 8.8 us at B. With CLUSTER=1,
   sharing nothing, it takes 4.4; with 2 all fit, and it is 5.0: starting together costs more than the
   halved reads give. TMA and the overlapping launch are what remained of it.

   Nor was there anything to save: the bytes that arrive at the SMs are the same 17 MB, and of splitk's
   17 MB only 4.8 MB were asked of L2 (5.2 MB here), so neighbours' reads are joined on the way without
   a cluster. l2-bandwidth fires on neither.

   after: splitk      arch: 90a
   moves: inst_async_copy<0.2x instructions<0.95x      moves-not: l2_to_l1_bytes<0.3x l2_read_bytes<0.3x
   budget: regs=255 smem=150K spills=0 stack=0
   tune: CLUSTER=4,1,2,8 OVERLAP=1,0
*/
#include "../../common/splitk.cuh"
#include "../../common/tma.cuh"

#ifndef CLUSTER
#define CLUSTER 4  // blocks that share K and V
#endif
#ifndef OVERLAP
#define OVERLAP 1  // start before the kernel before has ended
#endif
constexpr int WARPS = 8, THREADS = 32 * WARPS;

// STRIPS: of 16 rows, a warp. GROUPS: of warps with the same rows. KEYS: a slice. SLOTS: slices held.
template <int D_, int STRIPS_, int GROUPS_, int KEYS_, int SLOTS_>
struct Plan {
  static constexpr int D = D_, STRIPS = STRIPS_, GROUPS = GROUPS_, KEYS = KEYS_, SLOTS = SLOTS_;
  static constexpr int SPLITS = WARPS / GROUPS;  // warps with the same rows
  static constexpr int GROUP_ROWS = 16 * STRIPS, M = GROUP_ROWS * GROUPS;
  struct Slot {
    Slabs<KEYS, D> k, v;
  };
  using Part = splitk::Part<GROUP_ROWS, D>;
  // A part lies over its warp's share of the slots, or a little beyond where the share is too small.
  static constexpr size_t SHARE = sizeof(Slot) * SLOTS / WARPS;
  static constexpr size_t PART_PITCH = SHARE > sizeof(Part) ? SHARE : sizeof(Part);
  struct Shared {
    union {
      Slot slot[SLOTS];
      char bytes[PART_PITCH * WARPS];  // at last the parts of the output
    };
    Slabs<M, D> q;
    Barrier q_here, k_here[SLOTS], v_here[SLOTS];

    __device__ __forceinline__ Part& part(int warp) {
      return *reinterpret_cast<Part*>(bytes + sizeof(bytes) / WARPS * warp);
    }
  };
};

struct Maps {
  CUtensorMap q, k, v;
};

template <class P>
__global__ void __launch_bounds__(THREADS, 1)
    multicast(Attention a, const __grid_constant__ Maps maps) {
  constexpr int D = P::D, KEYS = P::KEYS, SLOTS = P::SLOTS;
  auto& m = shared_memory<typename P::Shared>();
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y;
  int group = warp / P::SPLITS, split = warp % P::SPLITS, rank = CLUSTER > 1 ? cluster_rank() : 0;
  int first = blockIdx.x * P::M, row = first + group * P::GROUP_ROWS;  // of the block, of the warp
  int keys = row < a.length ? a.keys(row + P::GROUP_ROWS) : 0;
  int shared_keys = a.keys(first + (CLUSTER - rank) * P::M);  // that some block of the cluster sees

  if (threadIdx.x == 0) {
    prefetch_map(&maps.q), prefetch_map(&maps.k), prefetch_map(&maps.v);
    barrier_init(&m.q_here, 1);
    for (int i = 0; i < SLOTS; ++i) barrier_init(&m.k_here[i], 1), barrier_init(&m.v_here[i], 1);
    barrier_init_fence();
  }
  __syncwarp();
  if (OVERLAP) let_next_kernel_start();
  if (CLUSTER > 1)
    cluster_arrive_relaxed(), cluster_wait();  // all barriers are there before anything comes
  else
    __syncthreads();
  if (OVERLAP) wait_for_earlier_kernels();

  // Slice `slot` of a round belongs to warp slot % WARPS of each block for announcing and draining,
  // and to block slot % CLUSTER for asking.
  auto ask = [&](int round, auto& here, const CUtensorMap* map, auto tile) {
    for (int slot = warp; slot < SLOTS; slot += WARPS) {
      int key = (round * SLOTS + slot) * KEYS;
      if (key >= shared_keys) break;
      barrier_expect(&here[slot], Slabs<KEYS, D>::BYTES);
      if (CLUSTER == 1)
        tile(slot).fetch(map, &here[slot], key, head);
      else if (slot % CLUSTER == rank)
        tile(slot).fetch_for((1 << CLUSTER) - 1, map, &here[slot], key, head);
    }
  };
  auto k_tile = [&](int slot) -> auto& { return m.slot[slot].k; };
  auto v_tile = [&](int slot) -> auto& { return m.slot[slot].v; };

  if (threadIdx.x == 0) {
    barrier_expect(&m.q_here, Slabs<P::M, D>::BYTES);
    m.q.fetch(&maps.q, &m.q_here, first, head);
  }
  flash::Folded folded(a.scale);
  flash::Rows<D> rows[P::STRIPS];
#pragma unroll
  for (int i = 0; i < P::STRIPS; ++i) rows[i].clear();

  bool fresh = true;
  for (int round = 0; round * SLOTS * KEYS < shared_keys; ++round) {
    if (round > 0) {  // the slots are used up, here and in the cluster
      if (CLUSTER > 1)
        cluster_arrive(), cluster_wait();
      else
        __syncthreads();
    }
    if (lane == 0) {
      ask(round, m.k_here, &maps.k, k_tile);
      ask(round, m.v_here, &maps.v, v_tile);
    }
    __syncwarp();
    if (round == 0) {
      barrier_wait(&m.q_here, 0);
#pragma unroll
      for (int i = 0; i < P::STRIPS; ++i) {
        rows[i].load(m.q, group * P::GROUP_ROWS + 16 * i, lane);
        folded.apply_sign(rows[i].q);
      }
    }
    for (int slot = split; slot < SLOTS; slot += P::SPLITS) {
      int key = (round * SLOTS + slot) * KEYS;
      if (key >= keys) break;
      float s[P::STRIPS][KEYS / 8][4];
      barrier_wait(&m.k_here[slot], round % 2);
#pragma unroll
      for (int i = 0; i < P::STRIPS; ++i)
        flash::scores<KEYS, D>(s[i], rows[i].q, m.slot[slot].k, 0, lane);
#pragma unroll
      for (int i = 0; i < P::STRIPS; ++i) {
        if (flash::at_edge<KEYS>(a, row + 16 * i, key))
          flash::mask<KEYS>(a, s[i], row + 16 * i, key, lane);
        splitk::softmax<KEYS>(rows[i], s[i], folded.factor, fresh);
      }
      barrier_wait(&m.v_here[slot], round % 2);
#pragma unroll
      for (int i = 0; i < P::STRIPS; ++i)
        flash::pv<KEYS, D>(rows[i].out, s[i], m.slot[slot].v, 0, lane);
      fresh = false;
    }
    for (int slot = warp; slot < SLOTS; slot += WARPS) {  // what came for nobody has come, too
      if ((round * SLOTS + slot) * KEYS >= shared_keys) break;
      barrier_wait(&m.k_here[slot], round % 2);
      barrier_wait(&m.v_here[slot], round % 2);
    }
  }
  if (CLUSTER > 1) cluster_arrive_relaxed();  // all that I asked for has come to me

  // A part lies over slots that its own warp alone used, or else over slots that nobody uses now.
  if (P::GROUPS > 1 || SLOTS != WARPS || P::PART_PITCH > P::SHARE)
    __syncthreads();
  else
    __syncwarp();
#pragma unroll
  for (int i = 0; i < P::STRIPS; ++i) splitk::leave(m.part(warp), rows[i], 16 * i, lane);
  __syncthreads();
  splitk::combine<D, P::M, P::SPLITS, THREADS>(
      [&](int split, int row) -> auto& { return m.part(row / P::GROUP_ROWS * P::SPLITS + split); },
      head_of<D>(a.o, a, head), first, a.length, threadIdx.x);
  if (CLUSTER > 1) cluster_wait();  // nobody leaves while something of his may be on its way
}

template <class P>
cudaError_t start(const Attention& a, cudaStream_t stream) {
  Maps maps;
  if (cudaError_t e = tensor_map(&maps.q, a.q, P::D, a, P::M)) return e;
  if (cudaError_t e = tensor_map(&maps.k, a.k, P::D, a, P::KEYS)) return e;
  if (cudaError_t e = tensor_map(&maps.v, a.v, P::D, a, P::KEYS)) return e;
  int clusters = ceil_div(a.length, P::M * CLUSTER);
  return launch<multicast<P>>(
      {dim3(clusters * CLUSTER, a.heads), THREADS, sizeof(typename P::Shared), CLUSTER, OVERLAP},
      stream, a, maps);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    int sms = 0;
    if (cudaError_t e = device_attribute<cudaDevAttrMultiProcessorCount>(&sms)) return e;
    if constexpr (D == 128) return start<Plan<128, 1, 2, 64, 4>>(a, args->stream);
    if (ceil_div(a.length, 32) * a.heads > sms)
      return start<Plan<64, 2, 2, 64, 8>>(a, args->stream);
    if (a.length <= 256) return start<Plan<64, 2, 1, 32, 8>>(a, args->stream);
    return start<Plan<64, 2, 1, 64, 8>>(a, args->stream);
  });
}
