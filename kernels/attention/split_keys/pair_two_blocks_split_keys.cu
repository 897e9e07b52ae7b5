/* Keys split over warpgroups and over two blocks, wgmma, TMA: parts added up in shared memory.

   splitk is limited by what each SM fetches (all of K and V for 32 rows: 17 MB at B) and by the
   instructions that feed mma.sync. Here a block has 64 rows and, where that leaves SMs idle, a cluster
   of two blocks halves the keys: each fetches half of K and V, 9 MB in all at B, and still 128 blocks
   run. wgmma reads K and V from shared memory itself, so no ldmatrix is issued; each warpgroup has
   its own keys, 128 or 64, and its own barriers, so nothing waits for anybody until the end. Then each
   block finishes half of the rows: the parts that belong to the other block are written straight into
   its shared memory, and one cluster barrier later both add up. Launches may overlap the end of the
   kernel before them, which hides barriers' setting up.

   Against splitk: bytes from L2 halve, instructions fall by two thirds or more, HMMA becomes HGMMA.
   What is left at B is latency: one trip to L2, two products, one softmax, one cluster barrier.

   What came: at V, where no cluster is needed, bytes to 0.52 and instructions to 0.40. At B 0.67 and
   0.50, at A 0.83 and 0.59: Q goes to both blocks, and the parts that they give each other, 2 MB, count
   as bytes that reach an SM; the smaller K and V, the more of the whole that is.

   after: splitk      arch: 90a      moves: l2_to_l1_bytes<0.9x instructions<0.6x
   budget: regs=255 smem=227K spills=0 stack=0
   tune: OVERLAP=1,0
*/
#include "../../common/wgmma_attention.cuh"

#ifndef OVERLAP
#define OVERLAP 1  // start before the kernel before has ended
#endif
constexpr int M = 64;

// GROUPS: of four warps. KEYS: a slice. SLOTS: slices held per group. CLUSTER: blocks (1 or 2) with
// the same rows; part p of the keys (of CLUSTER * GROUPS) is slices p, p + CLUSTER * GROUPS, …
template <int D_, int GROUPS_, int KEYS_, int SLOTS_, int CLUSTER_>
struct Plan {
  static constexpr int D = D_, GROUPS = GROUPS_, KEYS = KEYS_, SLOTS = SLOTS_, CLUSTER = CLUSTER_;
  static constexpr int THREADS = 128 * GROUPS, PARTS = CLUSTER * GROUPS;
  static constexpr int ROWS = M / CLUSTER;  // that a block finishes
  struct Slot {
    Slabs<KEYS, D> k, v;
  };
  struct Shared {
    Slabs<M, D> q;
    Slot slot[GROUPS][SLOTS];
    // Parts of the rows of this block; then, for each warpgroup, what goes to the other block.
    splitk::Part<ROWS, D> part[PARTS + (CLUSTER > 1 ? GROUPS : 0)];
    Barrier q_here, parts_here, k_here[GROUPS][SLOTS], v_here[GROUPS][SLOTS];
  };
};

struct Maps {
  CUtensorMap q, k, v;
};

template <class P>
__global__ void __launch_bounds__(P::THREADS, 1)
    pair(Attention a, const __grid_constant__ Maps maps) {
  constexpr int D = P::D, KEYS = P::KEYS, SLOTS = P::SLOTS, PARTS = P::PARTS;
  auto& m = shared_memory<typename P::Shared>();
  int thread = threadIdx.x % 128, lane = threadIdx.x % 32, group = threadIdx.x / 128;
  int rank = P::CLUSTER > 1 ? cluster_rank() : 0, part = rank * P::GROUPS + group;
  int first = blockIdx.x / P::CLUSTER * M, head = blockIdx.y;
  int row = thread / 32 * 16;  // of this warp, among the M
  int slices = ceil_div(a.keys(first + M), KEYS);

  if (threadIdx.x == 0) {
    prefetch_map(&maps.q), prefetch_map(&maps.k), prefetch_map(&maps.v);
    barrier_init(&m.q_here, 1), barrier_init(&m.parts_here, 1);
    for (int g = 0; g < P::GROUPS; ++g)
      for (int i = 0; i < SLOTS; ++i)
        barrier_init(&m.k_here[g][i], 1), barrier_init(&m.v_here[g][i], 1);
    barrier_init_fence();
  }
  __syncwarp();
  if (P::CLUSTER > 1) cluster_arrive_relaxed();
  __syncthreads();
  if (OVERLAP) let_next_kernel_start(), wait_for_earlier_kernels();

#include "part_of_keys.cuh"  // rows: the block's, against the keys of this part

  // Rows of this warp belong to block row / ROWS of the cluster. Parts for the other block go there in
  // one copy a warpgroup, which that block's barrier counts: no fence of the whole cluster is needed.
  constexpr int GOING = 32 * P::ROWS / 16;  // threads of a warpgroup with rows of the other block
  if (P::CLUSTER == 1 || row / P::ROWS == rank) {
    splitk::leave(m.part[part], rows, row % P::ROWS, lane);
  } else {
    splitk::leave(m.part[PARTS + group], rows, row % P::ROWS, lane);
    fence_for_async();
    named_barrier(1 + group, GOING);
  }
  if (P::CLUSTER > 1) {
    constexpr unsigned BYTES = sizeof(m.part[0]);
    cluster_wait();  // the other block has started, and its barriers are there
    if (thread == (1 - rank) * GOING)
      copy_to_block(1 - rank, &m.part[part], &m.part[PARTS + group], BYTES, &m.parts_here);
    if (threadIdx.x == 0) barrier_expect(&m.parts_here, P::GROUPS * BYTES);
    __syncwarp();
  }
  __syncthreads();
  if (P::CLUSTER > 1) barrier_wait(&m.parts_here, 0), __syncwarp(), cluster_arrive_relaxed();
  splitk::combine<D, P::ROWS, PARTS, P::THREADS>([&](int p, int) -> auto& { return m.part[p]; },
                                                 head_of<D>(a.o, a, head), first + rank * P::ROWS,
                                                 a.length, threadIdx.x);
  if (P::CLUSTER > 1) cluster_wait();  // what I sent has arrived
}

template <class P>
cudaError_t start(const Attention& a, cudaStream_t stream) {
  Maps maps;
  if (cudaError_t e = tensor_map(&maps.q, a.q, P::D, a, M)) return e;
  if (cudaError_t e = tensor_map(&maps.k, a.k, P::D, a, P::KEYS)) return e;
  if (cudaError_t e = tensor_map(&maps.v, a.v, P::D, a, P::KEYS)) return e;
  return launch<pair<P>>({dim3(ceil_div(a.length, M) * P::CLUSTER, a.heads), P::THREADS,
                              sizeof(typename P::Shared), P::CLUSTER, OVERLAP},
                             stream, a, maps);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    int sms = 0;
    if (cudaError_t e = device_attribute<cudaDevAttrMultiProcessorCount>(&sms)) return e;
    bool alone =
        2 * ceil_div(a.length, M) * a.heads > sms;  // two blocks for the same rows: too many
    if constexpr (D == 128)
      return alone ? start<Plan<128, 2, 64, 2, 1>>(a, args->stream)
                   : start<Plan<128, 2, 64, 1, 2>>(a, args->stream);
    else if (alone)
      return start<Plan<64, 2, 128, 2, 1>>(a, args->stream);
    else if (a.length <= 256)
      return start<Plan<64, 2, 64, 1, 2>>(a, args->stream);
    else
      return start<Plan<64, 2, 128, 1, 2>>(a, args->stream);
  });
}
