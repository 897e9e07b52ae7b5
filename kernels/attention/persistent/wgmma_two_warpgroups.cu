/* Two or three consumer warpgroups, a TMA ring and a producer: for C and D.

   One block per SM loops over tiles of 128 or 192 queries. A producer warp keeps TMA a ring of K and V
   tiles ahead, across the ends of tiles too; the warpgroups that multiply have 64 rows each. Within a
   warpgroup the scores of tile j and P V of tile j-1 run on the tensor cores while nothing waits for
   them but the softmax of j, which only needs the former; two warpgroups take turns in starting
   products, so that one's softmax (XU and FP32) runs under the other's products. Registers go from the
   producer to those who need them.

   With D = 64 a tile's products and its exponentials take about a thousand cycles each, and so do the
   instructions around them: two warps a scheduler leave each of the three idle for most of the time. A
   third warpgroup fills more of it: C takes 158 us on an H200 instead of 171, although 192 rows do not
   divide 2048, and the last of six rounds is a third full. Under a causal mask the larger tile wastes
   more than it gains (117 us instead of 102), and with D = 128 the registers do not suffice (463 us
   instead of 228, with spills): two there. Three stages, or no turns, change nothing (within 3 %).

   Against persistent: HMMA becomes HGMMA and ldmatrix goes; tensor and XU pipes are active at the same
   time. At C the exponentials alone are 64 us and the products 87, so what does not overlap is seen
   at once. For A and B it is the wrong shape: 24 or 32 blocks.

   What came, at C: the tensor pipe goes from 26 to 46 % of its peak and XU from 18 to 48 %, ldmatrix is
   gone, 2.6 times as fast. short-scoreboard, which was to go, did not fire on persistent either: 14 % of
   the warps' time.

   after: persistent      arch: 90a      case: C
   moves: tensor_busy>1.5x xu_busy>1.5x inst_matrix<0.2x inst_shared_load<0.01x
   budget: regs=168 smem=227K spills=0 stack=0
   tune: TURNS=1,0 STAGES=2,3 GROUPS=3,2
*/
#include "../../common/wgmma_attention.cuh"

#ifndef TURNS
#define TURNS 1  // two warpgroups take turns in starting products
#endif
#ifndef STAGES
#define STAGES 2  // tiles in the ring
#endif
#ifndef GROUPS
#define GROUPS 3  // warpgroups that multiply where D is 64 and nothing is masked
#endif
constexpr int SECTION = 8;  // heads worked on at a time, so that their K and V stay in L2

// WARPGROUPS: that multiply, 64 rows each. REGISTERS: of each of their threads, taken from the producer
// and from what the launch left over: asking for more than there is would wait for ever.
template <int D_, int WARPGROUPS_>
struct Plan {
  static constexpr int D = D_, WARPGROUPS = WARPGROUPS_, M = 64 * WARPGROUPS, N = 128;
  static constexpr int THREADS = 128 * (WARPGROUPS + 1), AT_LAUNCH = 65536 / THREADS / 8 * 8;
  static constexpr int REGISTERS = WARPGROUPS == 2 ? 240 : 160, LEFT = 24;
  static_assert(WARPGROUPS == 2 || WARPGROUPS == 3, "");
  static_assert((REGISTERS - AT_LAUNCH) * WARPGROUPS <= AT_LAUNCH - LEFT, "");
  static constexpr bool IN_TURNS = TURNS && WARPGROUPS == 2;  // three have no need to
  struct Shared {
    Slabs<64, D> q[WARPGROUPS];
    Slabs<N, D> k[STAGES], v[STAGES];
    Barrier q_here, q_free, k_here[STAGES], k_free[STAGES], v_here[STAGES], v_free[STAGES];
  };
};

struct Maps {
  CUtensorMap q, k, v;
};

// Tile number `work` of M queries: which rows of which head, and how many tiles of N keys they see.
// Within a section of heads rows go forwards, and backwards in the next, which evens out a causal mask.
template <int M, int N>
struct Work {
  int first, head, tiles;
  __device__ __forceinline__ Work(const Attention& a, int work) {
    int blocks = ceil_div(a.length, M), section = work / (SECTION * blocks);
    int heads = min(SECTION, a.heads - section * SECTION), i = work - section * SECTION * blocks;
    int block = section % 2 ? i / heads : blocks - 1 - i / heads;
    head = section * SECTION + i % heads;
    first = block * M;
    tiles = ceil_div(a.keys(first + M), N);
  }
};

// A place in the ring, and how often it has been round.
struct Place {
  int slot = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void next() {
    if (++slot == STAGES) slot = 0, parity ^= 1;
  }
};

template <class P>
__device__ __forceinline__ void produce(const Attention& a, typename P::Shared& m, const Maps& maps,
                                        int works) {
  constexpr int D = P::D, N = P::N;
  Place at;
  unsigned q_parity = 0;
  for (int w = blockIdx.x; w < works; w += gridDim.x, q_parity ^= 1) {
    Work<P::M, P::N> work(a, w);
    barrier_wait(&m.q_free, q_parity ^ 1);
    barrier_expect(&m.q_here, P::WARPGROUPS * Slabs<64, D>::BYTES);
    for (int g = 0; g < P::WARPGROUPS; ++g)
      m.q[g].fetch(&maps.q, &m.q_here, work.first + 64 * g, work.head);
    for (int tile = 0; tile < work.tiles; ++tile, at.next()) {
      barrier_wait(&m.k_free[at.slot], at.parity ^ 1);
      barrier_expect(&m.k_here[at.slot], Slabs<N, D>::BYTES);
      m.k[at.slot].fetch(&maps.k, &m.k_here[at.slot], tile * N, work.head);
      barrier_wait(&m.v_free[at.slot], at.parity ^ 1);
      barrier_expect(&m.v_here[at.slot], Slabs<N, D>::BYTES);
      m.v[at.slot].fetch(&maps.v, &m.v_here[at.slot], tile * N, work.head);
    }
  }
}

template <class P>
__device__ __forceinline__ void consume(const Attention& a, typename P::Shared& m, int group,
                                        int works) {
  constexpr int D = P::D, N = P::N, LAST = P::WARPGROUPS - 1;
  int lane = threadIdx.x % 32;
  flash::Folded folded(a.scale);
  Place k_at, v_at;
  unsigned q_parity = 0;
  auto release = [&](Barrier* free) {  // one arrival a warp
    __syncwarp();
    if (lane == 0) barrier_arrive(free);
    __syncwarp();
  };
  auto begin_turn = [&] {
    if (P::IN_TURNS) named_barrier(1 + group, 256);
  };
  auto end_turn = [&](bool last) {  // nobody waits for a turn after the very last
    if (P::IN_TURNS && !(last && group == LAST))
      named_barrier_arrive(1 + (group + 1) % P::WARPGROUPS, 256);
  };
  if (P::IN_TURNS && group == LAST) named_barrier_arrive(1, 256);  // warpgroup 0 begins

  for (int w = blockIdx.x; w < works; w += gridDim.x, q_parity ^= 1) {
    Work<P::M, P::N> work(a, w);
    bool last_work = w + static_cast<int>(gridDim.x) >= works;
    int row = work.first + 64 * group + threadIdx.x % 128 / 32 * 16;
    flash::Rows<D> rows;
    rows.clear();
    float s[N / 8][4], correction[2];
    uint32_t p[N / 16][4];
    auto softmax = [&](int tile) {
      if (flash::at_edge<N>(a, row, tile * N)) flash::mask<N>(a, s, row, tile * N, lane);
      flash::folded_probabilities<N>(rows, s, folded.factor, correction);
    };
    barrier_wait(&m.q_here, q_parity);
    if (folded.sign) {
      warpgroup::apply_sign(m.q[group], folded.sign, threadIdx.x % 128, 128);
      named_barrier(8 + group, 128);
    }

    barrier_wait(&m.k_here[k_at.slot], k_at.parity);
    begin_turn();
    wgmma_fence();
    warpgroup::start_scores<N, D>(s, m.q[group], 0, m.k[k_at.slot]);
    wgmma_commit();
    end_turn(last_work && work.tiles == 1);
    wgmma_wait<0>();
    hold(s);
    release(&m.k_free[k_at.slot]);
    k_at.next();
    softmax(0);
    warpgroup::pack_probabilities<N>(p, s);

    for (int tile = 1; tile < work.tiles; ++tile) {
      barrier_wait(&m.k_here[k_at.slot], k_at.parity);
      barrier_wait(&m.v_here[v_at.slot], v_at.parity);
      begin_turn();
      hold(rows.out);
      wgmma_fence();
      warpgroup::start_scores<N, D>(s, m.q[group], 0, m.k[k_at.slot]);
      wgmma_commit();
      warpgroup::start_pv<N, D>(rows.out, p, m.v[v_at.slot]);  // of the tile before
      wgmma_commit();
      end_turn(last_work && tile == work.tiles - 1);
      wgmma_wait<1>();
      hold(s);
      release(&m.k_free[k_at.slot]);
      k_at.next();
      softmax(tile);
      wgmma_wait_after<0>(rows.sum[0] + rows.sum[1]);  // the softmax runs beside P V
      hold(rows.out);
      release(&m.v_free[v_at.slot]);
      v_at.next();
      rows.rescale(correction);
      warpgroup::pack_probabilities<N>(p, s);
    }
    release(&m.q_free);
    barrier_wait(&m.v_here[v_at.slot], v_at.parity);
    hold(rows.out);
    wgmma_fence();
    warpgroup::start_pv<N, D>(rows.out, p, m.v[v_at.slot]);
    wgmma_commit();
    wgmma_wait<0>();
    hold(rows.out);
    release(&m.v_free[v_at.slot]);
    v_at.next();
    for (float& sum : rows.sum) sum = flash::quad_sum(sum);
    rows.store(head_of<D>(a.o, a, work.head), row, a.length, lane);
  }
}

template <class P>
__global__ void __launch_bounds__(P::THREADS, 1)
    warpgroups(Attention a, const __grid_constant__ Maps maps, int works) {
  auto& m = shared_memory<typename P::Shared>();
  int group = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    prefetch_map(&maps.q), prefetch_map(&maps.k), prefetch_map(&maps.v);
    barrier_init(&m.q_here, 1), barrier_init(&m.q_free, 4 * P::WARPGROUPS);
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(&m.k_here[i], 1), barrier_init(&m.k_free[i], 4 * P::WARPGROUPS);
      barrier_init(&m.v_here[i], 1), barrier_init(&m.v_free[i], 4 * P::WARPGROUPS);
    }
    barrier_init_fence();
  }
  __syncthreads();

  if (group == P::WARPGROUPS) {
    give_up_registers<P::LEFT>();
    if (threadIdx.x % 128 == 0) produce<P>(a, m, maps, works);
  } else {
    take_registers<P::REGISTERS>();
    consume<P>(a, m, group, works);
  }
}

template <class P>
cudaError_t start(const Attention& a, cudaStream_t stream) {
  int sms = 0, works = ceil_div(a.length, P::M) * a.heads;
  if (cudaError_t e = device_attribute<cudaDevAttrMultiProcessorCount>(&sms)) return e;
  Maps maps;
  if (cudaError_t e = tensor_map(&maps.q, a.q, P::D, a, 64)) return e;
  if (cudaError_t e = tensor_map(&maps.k, a.k, P::D, a, P::N)) return e;
  if (cudaError_t e = tensor_map(&maps.v, a.v, P::D, a, P::N)) return e;
  return launch<warpgroups<P>>(
      {dim3(min(works, sms)), P::THREADS, sizeof(typename P::Shared)}, stream, a, maps, works);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    if constexpr (D == 64)  // three of D = 128 do not fit the registers
      if (!a.causal) return start<Plan<64, GROUPS>>(a, args->stream);
    return start<Plan<D, 2>>(a, args->stream);
  });
}
