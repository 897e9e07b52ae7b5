/* Warpgroups that multiply 64 rows each, and a producer that keeps Q, K and V ahead of them.

   One block an SM loops over tiles of 64 GROUPS rows of a head. The producer's thread fetches Q, into two
   slots so that the next tile's is there in time, and a ring of K and V tiles of N keys. A warpgroup
   starts the scores of tile j and P V of tile j-1 together; the softmax of j runs beside the latter.

   Without a mask, tiles go in the order of their heads: blocks that run side by side share K and V.
   Under a causal mask a warpgroup leaves out keys that only rows below its own see, and the longest
   tiles go first, forwards over the blocks in one round and backwards in the next. That needs K and V of
   all heads at a time, which L2 has no room for with D = 128: there a few heads are worked on at a time,
   from their last rows to the first and, in the next such section, the other way.
*/
#pragma once
#include "online_max.cuh"
#include "../../common/wgmma_attention.cuh"

namespace warpgroups {

template <class P>
struct Work;

// What a rung's Plan starts from, and may say otherwise.
template <int D_, int GROUPS_, int N_, int STAGES_, bool CAUSAL_>
struct Basic {
  static constexpr int D = D_, GROUPS = GROUPS_, N = N_, STAGES = STAGES_;  // N: keys a tile
  static constexpr bool CAUSAL = CAUSAL_;
  static constexpr Maximum MAXIMUM = Maximum::EVERY;
  static constexpr bool TURNS = false;    // warpgroups start products in turn
  static constexpr bool UNIFORM = false;  // that a warpgroup has one number is known to the compiler
  static constexpr bool Q_IN_REGISTERS = false;
  static constexpr bool V_LATE = false;  // V is waited for when the scores have started
  static constexpr int Q_SLOTS = 2, SECTION = D == 64 ? 0 : 8;  // heads at a time (causal), 0: all
  static constexpr int CUBIC = 0;  // of 16 exponentials, so many on the FMA pipe
  // Problems that share heads of K and V, or leave out keys, say otherwise:
  static __device__ __forceinline__ int key_head(int head) { return head; }
  using Input = Attention;
  template <class P>
  using Works = Work<P>;
};

// Registers of a thread that multiplies, taken from the producer and from what the launch left over:
// asking for more than a block was launched with would wait for ever.
template <class P>
struct Registers {
  static constexpr int THREADS = 128 * (P::GROUPS + 1), AT_LAUNCH = 65536 / THREADS / 8 * 8;
  static constexpr int LEFT = P::GROUPS == 3 ? 32 : 24;
  static constexpr int MINE = (AT_LAUNCH + (AT_LAUNCH - LEFT) / P::GROUPS) / 8 * 8;
  static_assert(MINE <= 240 && (MINE - AT_LAUNCH) * P::GROUPS <= AT_LAUNCH - LEFT, "");
};

template <class P>
struct Shared {
  Slabs<64, P::D> q[P::Q_SLOTS][P::GROUPS];
  Slabs<P::N, P::D> k[P::STAGES], v[P::STAGES];
  Barrier q_here[P::Q_SLOTS][P::GROUPS], q_free[P::Q_SLOTS][P::GROUPS];
  Barrier k_here[P::STAGES], k_free[P::STAGES], v_here[P::STAGES], v_free[P::STAGES];
};

struct Maps {
  CUtensorMap q, k, v;
};

// Tile `work`: which rows of which head, and how many tiles of keys its block needs; none where there
// is nothing to do (the last round of a causal mask has holes).
template <class P>
struct Work {
  static constexpr int M = 64 * P::GROUPS;
  int first, head, tiles = 0;
  __device__ __forceinline__ Work(const Attention& a, int work, int works) {
    const int blocks = ceil_div(a.length, M), grid = gridDim.x;
    if constexpr (P::CAUSAL && P::SECTION > 0) {
      const int section = work / (P::SECTION * blocks);
      const int heads = min(P::SECTION, a.heads - section * P::SECTION);
      const int i = work - section * P::SECTION * blocks;
      first = (section % 2 ? i / heads : blocks - 1 - i / heads) * M;
      head = section * P::SECTION + i % heads;
    } else if constexpr (P::CAUSAL) {
      const int round = work / grid;
      if (round % 2) work = (2 * round + 1) * grid - 1 - work;
      if (work >= works) return;
      first = (blocks - 1 - work / a.heads) * M, head = work % a.heads;
    } else {
      first = work % blocks * M, head = work / blocks;
    }
    tiles = ceil_div(a.keys(first + M), P::N);
  }
  static __device__ __forceinline__ int end(int works) {
    const int grid = gridDim.x;
    return P::CAUSAL && P::SECTION == 0 ? ceil_div(works, grid) * grid : works;
  }
  static __device__ __forceinline__ int key(int tile) { return tile * P::N; }
};
template <class P>
using WorksOf = typename P::template Works<P>;

// A place in a ring of SLOTS, and how often it has been round.
template <int SLOTS>
struct Place {
  int slot = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void next() {
    if (++slot == SLOTS) slot = 0, parity ^= 1;
  }
};

template <class P>
__device__ __forceinline__ void produce(const typename P::Input& a, Shared<P>& m, const Maps& maps,
                                        int works) {
  Place<P::STAGES> at;
  Place<P::Q_SLOTS> q;
  for (int w = blockIdx.x; w < WorksOf<P>::end(works); w += gridDim.x) {
    WorksOf<P> work(a, w, works);
    if (work.tiles == 0) continue;
    for (int g = 0; g < P::GROUPS; ++g) {
      barrier_wait(&m.q_free[q.slot][g], q.parity ^ 1);
      barrier_expect(&m.q_here[q.slot][g], Slabs<64, P::D>::BYTES);
      m.q[q.slot][g].fetch(&maps.q, &m.q_here[q.slot][g], work.first + 64 * g, work.head);
    }
    q.next();
    for (int tile = 0; tile < work.tiles; ++tile, at.next()) {
      barrier_wait(&m.k_free[at.slot], at.parity ^ 1);
      barrier_expect(&m.k_here[at.slot], Slabs<P::N, P::D>::BYTES);
      m.k[at.slot].fetch(&maps.k, &m.k_here[at.slot], work.key(tile),
                         P::key_head(work.head));
      barrier_wait(&m.v_free[at.slot], at.parity ^ 1);
      barrier_expect(&m.v_here[at.slot], Slabs<P::N, P::D>::BYTES);
      m.v[at.slot].fetch(&maps.v, &m.v_here[at.slot], work.key(tile),
                         P::key_head(work.head));
    }
  }
}

// One warp of a warpgroup that multiplies.
template <class P>
class Consumer {
  static constexpr int D = P::D, N = P::N, TILES = N / 8, LAST = P::GROUPS - 1;
  using Scores = float[TILES][4];
  using Probabilities = uint32_t[N / 16][4];
  const typename P::Input& a;
  Shared<P>& m;
  const int group, lane;
  const flash::Folded folded;
  flash::Rows<D> rows;
  Place<P::STAGES> k_at, v_at;
  Place<P::Q_SLOTS> q_at;
  int row;  // of this warp's sixteen, the first
  float correction[2];
  bool raised;  // the maximum: the output has to be corrected

 public:
  __device__ __forceinline__ Consumer(const typename P::Input& a, Shared<P>& m, int group)
      : a(a), m(m), group(group), lane(threadIdx.x % 32), folded(a.scale) {}

  __device__ __forceinline__ void run(int works) {
    if (P::TURNS && group == LAST) named_barrier_arrive(1, 256);  // warpgroup 0 begins
    for (int w = blockIdx.x; w < WorksOf<P>::end(works); w += gridDim.x) {
      WorksOf<P> work(a, w, works);
      if (work.tiles == 0) continue;
      row = work.first + 64 * group + threadIdx.x % 128 / 32 * 16;
      take_q();
      int tiles = P::CAUSAL ? ceil_div(a.keys(work.first + 64 * (group + 1)), N) : work.tiles;
      attend(work, tiles);
      if (P::CAUSAL)
        for (; tiles < work.tiles; ++tiles) leave_out();
      q_at.next();
      for (float& sum : rows.sum) sum = flash::quad_sum(sum);
      rows.store(head_of<D>(a.o, a, work.head), row, a.length, lane);
    }
    if (P::TURNS && group == 0) named_barrier(1, 256);  // takes the turn that nobody needs
  }

 private:
  __device__ __forceinline__ Slabs<64, D>& q() { return m.q[q_at.slot][group]; }
  __device__ __forceinline__ void release(Barrier* free) {  // one arrival a warp
    __syncwarp();
    if (lane == 0) barrier_arrive(free);
    __syncwarp();
  }
  __device__ __forceinline__ void wait_k() { barrier_wait(&m.k_here[k_at.slot], k_at.parity); }
  __device__ __forceinline__ void wait_v() { barrier_wait(&m.v_here[v_at.slot], v_at.parity); }
  __device__ __forceinline__ void free_k() { release(&m.k_free[k_at.slot]), k_at.next(); }
  __device__ __forceinline__ void free_v() { release(&m.v_free[v_at.slot]), v_at.next(); }
  __device__ __forceinline__ void begin_turn() {
    if (P::TURNS) named_barrier(1 + group, 256);
  }
  __device__ __forceinline__ void end_turn() {
    if (P::TURNS) named_barrier_arrive(1 + (group + 1) % P::GROUPS, 256);
  }
  __device__ __forceinline__ void leave_out() {
    begin_turn(), end_turn();
    wait_k(), free_k();
    wait_v(), free_v();
  }

  __device__ __forceinline__ void take_q() {
    rows.clear();
    barrier_wait(&m.q_here[q_at.slot][group], q_at.parity);
    if constexpr (P::Q_IN_REGISTERS) {
      rows.load(q(), threadIdx.x % 128 / 32 * 16, lane);
      folded.apply_sign(rows.q);
    } else if (folded.sign) {
      warpgroup::apply_sign(q(), folded.sign, threadIdx.x % 128, 128);
      named_barrier(8 + group, 128);
    }
  }
  __device__ __forceinline__ void start_scores(Scores& s) {
    if constexpr (P::Q_IN_REGISTERS)
      warpgroup::start_scores<N, D>(s, rows.q, m.k[k_at.slot]);
    else
      warpgroup::start_scores<N, D>(s, q(), 0, m.k[k_at.slot]);
    wgmma_commit();
  }
  __device__ __forceinline__ void start_pv(const Probabilities& p) {
    warpgroup::start_pv<N, D>(rows.out, p, m.v[v_at.slot]);
    wgmma_commit();
  }

  // The scores of tile `tile` once more, by this warp alone: not in turn, and while products run.
  __device__ __forceinline__ void scores_again(Scores& s, const WorksOf<P>& work, int tile) {
#pragma unroll
    for (int n = 0; n < TILES; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] = 0.0f;
#pragma unroll(P::Q_IN_REGISTERS ? D / 16 : 1)
    for (int d = 0; d < D / 16; ++d) {
      uint32_t left[4];
      if constexpr (P::Q_IN_REGISTERS)
        for (int i = 0; i < 4; ++i) left[i] = rows.q[d][i];
      else
        load_a(left, q(), threadIdx.x % 128 / 32 * 16, 16 * d, lane);
#pragma unroll
      for (int n = 0; n < N / 16; ++n) {
        uint32_t b[4];
        load_b(b, m.k[k_at.slot], 16 * n, 16 * d, lane);
        mma(s[2 * n], left, b[0], b[1]);
        mma(s[2 * n + 1], left, b[2], b[3]);
      }
    }
    mask(s, work, tile);
  }
  __device__ __forceinline__ void mask(Scores& s, const WorksOf<P>& work, int tile) {
    if (flash::at_edge<N>(a, row, work.key(tile))) flash::mask<N>(a, s, row, work.key(tile), lane);
  }
  __device__ __forceinline__ void raise_to(const float (&top)[2]) {
    online::raise(rows, top, folded.factor, correction);
    raised = true;
  }

  // s becomes probabilities. K of the tile is free from here on.
  template <bool FIRST>
  __device__ __forceinline__ void softmax(Scores& s, const WorksOf<P>& work, int tile) {
    constexpr bool BLIND = P::MAXIMUM == Maximum::NONE && !FIRST;
    float top[2], sum[2];
    if (!BLIND) free_k();
    mask(s, work, tile);
    raised = false;
    if (!BLIND) {
      online::lane_max(top, s);
      if (FIRST || P::MAXIMUM == Maximum::EVERY || online::too_low(rows, top, folded.factor))
        raise_to(top);
    }
    online::exponentials<P::CUBIC>(rows, s, folded.factor, sum);
    if (BLIND) {
      if (online::too_large(sum)) {
        scores_again(s, work, tile);
        online::lane_max(top, s);
        raise_to(top);
        online::exponentials<P::CUBIC>(rows, s, folded.factor, sum);
      }
      free_k();
    }
    rows.sum[0] += sum[0], rows.sum[1] += sum[1];
  }

  __device__ __forceinline__ void attend(const WorksOf<P>& work, int tiles) {
    Scores s;
    Probabilities p;
    wait_k();
    begin_turn();
    wgmma_fence();
    start_scores(s);
    end_turn();
    wgmma_wait<0>();
    hold(s);
    // Not when ldmatrix was started: only what has been multiplied is sure to have been read.
    if (P::Q_IN_REGISTERS) release(&m.q_free[q_at.slot][group]);
    softmax<true>(s, work, 0);
    warpgroup::pack_probabilities<N>(p, s);
    for (int tile = 1; tile < tiles; ++tile) {
      wait_k();
      if (!P::V_LATE) wait_v();
      begin_turn();
      hold(rows.out);
      wgmma_fence();
      start_scores(s);
      if (P::V_LATE) wait_v();
      start_pv(p);  // of the tile before
      end_turn();
      wgmma_wait<1>();
      hold(s);
      softmax<false>(s, work, tile);
      wgmma_wait_after<0>(rows.sum[0] + rows.sum[1]);  // the softmax runs beside P V
      hold(rows.out);
      free_v();
      if (P::MAXIMUM == Maximum::EVERY || raised) rows.rescale(correction);
      warpgroup::pack_probabilities<N>(p, s);
    }
    if (!P::Q_IN_REGISTERS) release(&m.q_free[q_at.slot][group]);
    wait_v();
    hold(rows.out);
    wgmma_fence();
    start_pv(p);
    wgmma_wait<0>();
    hold(rows.out);
    free_v();
  }
};

template <class P>
__device__ __forceinline__ void attend_block(const typename P::Input& a, const Maps& maps,
                                             int works) {
  auto& m = shared_memory<Shared<P>>();
  int group = threadIdx.x / 128;
  if constexpr (P::UNIFORM) group = __shfl_sync(0xffffffffu, group, 0);
  if (threadIdx.x == 0) {
    prefetch_map(&maps.q), prefetch_map(&maps.k), prefetch_map(&maps.v);
    for (int i = 0; i < P::Q_SLOTS; ++i)
      for (int g = 0; g < P::GROUPS; ++g)
        barrier_init(&m.q_here[i][g], 1), barrier_init(&m.q_free[i][g], 4);
    for (int i = 0; i < P::STAGES; ++i) {
      barrier_init(&m.k_here[i], 1), barrier_init(&m.k_free[i], 4 * P::GROUPS);
      barrier_init(&m.v_here[i], 1), barrier_init(&m.v_free[i], 4 * P::GROUPS);
    }
    barrier_init_fence();
  }
  __syncthreads();

  if (group == P::GROUPS) {
    give_up_registers<Registers<P>::LEFT>();
    if (threadIdx.x % 128 == 0) produce<P>(a, m, maps, works);
  } else {
    take_registers<Registers<P>::MINE>();
    Consumer<P>(a, m, group).run(works);
  }
}

template <class P>
__global__ void __launch_bounds__(Registers<P>::THREADS, 1)
    attend(Attention a, const __grid_constant__ Maps maps, int works) {
  attend_block<P>(a, maps, works);
}

template <class P>
cudaError_t start(const Attention& a, cudaStream_t stream) {
  int sms = 0, works = ceil_div(a.length, 64 * P::GROUPS) * a.heads;
  if (cudaError_t e = device_attribute<cudaDevAttrMultiProcessorCount>(&sms)) return e;
  Maps maps;
  if (cudaError_t e = tensor_map(&maps.q, a.q, P::D, a, 64)) return e;
  if (cudaError_t e = tensor_map(&maps.k, a.k, P::D, a, P::N)) return e;
  if (cudaError_t e = tensor_map(&maps.v, a.v, P::D, a, P::N)) return e;
  return launch<attend<P>>({dim3(min(works, sms)), Registers<P>::THREADS, sizeof(Shared<P>)}, stream,
                           a, maps, works);
}

// PLAN<D, CAUSAL> for D = 64 and 128.
template <template <int, bool> class PLAN>
int start_any(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return a.causal ? start<PLAN<D, true>>(a, args->stream) : start<PLAN<D, false>>(a, args->stream);
  });
}

}  // namespace warpgroups
