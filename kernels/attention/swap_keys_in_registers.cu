/* Candidate: keys split over warpgroups and blocks, parts merged in registers.

   arch: 90a   budget: regs=255 smem=227K spills=0 stack=0
   after: champion
*/
#include "../common/wgmma_attention.cuh"

#ifndef OVERLAP
#define OVERLAP 1  // start before the kernel before has ended
#endif
#ifndef HALF_MAIL
#define HALF_MAIL 0  // parts go to the other block in fp16
#endif
#ifndef PLAN_A
#define PLAN_A Plan<64, 1, 2, 64, 1, 2, 2>
#endif
#ifndef PLAN_B
#define PLAN_B Plan<64, 1, 2, 128, 1, 2, 2>
#endif
#ifndef PLAN_V
#define PLAN_V Plan<64, 1, 2, 64, 2, 1, 2>
#endif

// What a lane has of a row's part: its own share of the sum, the maximum of the whole row.
struct Stats {
  float max[2], sum[2];
};

// TILES of 16 x 8 results of a warp with their stats, lane by lane: what one warp gives another that
// has the same rows. In halves they are divided by the sum first, so that they fit.
template <int TILES, bool HALF>
struct alignas(16) Mail {
  static constexpr int LINES = (HALF ? TILES / 2 : TILES) + 1;
  float4 line[LINES][32];

  // Calls put(line, value) for each line.
  template <class PUT>
  static __device__ __forceinline__ void write(const float (*out)[4], const Stats& stats, PUT put) {
    if constexpr (HALF) {
      float sum[2], scale[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        sum[i] = flash::quad_sum(stats.sum[i]);
        scale[i] = sum[i] > 0.0f ? 1.0f / sum[i] : 0.0f;
      }
#pragma unroll
      for (int n = 0; n < TILES; n += 2) {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          w[i] = pack(out[n + i / 2][i % 2 * 2] * scale[i % 2],
                      out[n + i / 2][i % 2 * 2 + 1] * scale[i % 2]);
        put(n / 2, make_float4(__uint_as_float(w[0]), __uint_as_float(w[1]), __uint_as_float(w[2]),
                               __uint_as_float(w[3])));
      }
      put(LINES - 1, make_float4(stats.max[0], stats.max[1], sum[0], sum[1]));
    } else {
#pragma unroll
      for (int n = 0; n < TILES; ++n)
        put(n, make_float4(out[n][0], out[n][1], out[n][2], out[n][3]));
      put(LINES - 1, make_float4(stats.max[0], stats.max[1], stats.sum[0], stats.sum[1]));
    }
  }

  // out and stats become those of both.
  __device__ __forceinline__ void merge_into(float (*out)[4], Stats& stats, int lane) const {
    float4 theirs = line[LINES - 1][lane];
    float max[2] = {theirs.x, theirs.y}, sum[2] = {theirs.z, theirs.w}, mine[2], other[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float top = fmaxf(stats.max[i], max[i]), base = top == -INFINITY ? 0.0f : top;
      mine[i] = exp2_approx(stats.max[i] - base);
      other[i] = exp2_approx(max[i] - base);
      stats.max[i] = top;
      if (HALF) {
        other[i] *= sum[i];  // of the whole quad: one lane counts it
        stats.sum[i] = stats.sum[i] * mine[i] + (lane % 4 == 0 ? other[i] : 0.0f);
      } else {
        stats.sum[i] = stats.sum[i] * mine[i] + sum[i] * other[i];
      }
    }
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
      float x[4];
      if constexpr (HALF) {
        float4 both = line[n / 2][lane];
        float words[2] = {n % 2 ? both.z : both.x, n % 2 ? both.w : both.y};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          uint32_t w = __float_as_uint(words[i]);
          float2 pair = __half22float2(*reinterpret_cast<half2*>(&w));
          x[2 * i] = pair.x, x[2 * i + 1] = pair.y;
        }
      } else {
        float4 y = line[n][lane];
        x[0] = y.x, x[1] = y.y, x[2] = y.z, x[3] = y.w;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) out[n][i] = out[n][i] * mine[i / 2] + x[i] * other[i / 2];
    }
  }
};

// ROWS: warpgroups with rows of their own, 64 each. SPLITS: warpgroups with the same rows. KEYS: a
// slice. SLOTS: slices held per split. CLUSTER: blocks (1 or 2) with the same rows; part p of the keys
// (of CLUSTER * SPLITS) is slices p, p + CLUSTER * SPLITS, … RESIDENT: blocks per SM.
template <int D_, int ROWS_, int SPLITS_, int KEYS_, int SLOTS_, int CLUSTER_, int RESIDENT_>
struct Plan {
  static constexpr int D = D_, ROWS = ROWS_, SPLITS = SPLITS_, KEYS = KEYS_, SLOTS = SLOTS_,
                       CLUSTER = CLUSTER_, RESIDENT = RESIDENT_;
  static constexpr int M = 64 * ROWS, THREADS = 128 * ROWS * SPLITS, PARTS = CLUSTER * SPLITS;
  static constexpr int BOXES = KEYS / 64, STRIPS = 4 * ROWS;  // of 16 rows
  static constexpr int OWN = STRIPS / CLUSTER;                // strips that a block finishes
  static constexpr int TILES = D / 8 / SPLITS;                // of 8 columns, that a warp finishes
  using Near = Mail<(SPLITS > 1) ? TILES : 0, false>;
  using Far = Mail<(CLUSTER > 1) ? TILES : 0, HALF_MAIL>;
  struct Slot {
    Slabs<64, D> k[BOXES], v[BOXES];
  };
  struct Shared {
    Slabs<64, D> q[ROWS];
    Slot slot[SPLITS][SLOTS];
    Near near[SPLITS > 1 ? STRIPS * SPLITS * (SPLITS - 1) : 1];
    Far far[CLUSTER > 1 ? OWN * SPLITS : 1];

    // What split `from` leaves for split `to`, and what the other block does.
    __device__ __forceinline__ Near& between(int strip, int from, int to) {
      return near[(strip * SPLITS + to) * (SPLITS - 1) + from - (from > to)];
    }
    Barrier q_here, k_here[SPLITS][SLOTS][BOXES], v_here[SPLITS][SLOTS][BOXES];
    Barrier k_free[SPLITS][SLOTS], v_free[SPLITS][SLOTS], near_here[STRIPS], far_here[OWN][SPLITS];
  };
};

struct Maps {
  CUtensorMap q, k, v;
};

template <class P>
__device__ __forceinline__ void init_barriers(typename P::Shared& m) {
  barrier_init(&m.q_here, 1);
  for (int g = 0; g < P::SPLITS; ++g)
    for (int i = 0; i < P::SLOTS; ++i) {
      for (int b = 0; b < P::BOXES; ++b)
        barrier_init(&m.k_here[g][i][b], 1), barrier_init(&m.v_here[g][i][b], 1);
      barrier_init(&m.k_free[g][i], 4 * P::ROWS), barrier_init(&m.v_free[g][i], 4 * P::ROWS);
    }
  if (P::SPLITS > 1)
    for (int w = 0; w < P::STRIPS; ++w) barrier_init(&m.near_here[w], P::SPLITS);
  if (P::CLUSTER > 1)
    for (int w = 0; w < P::OWN; ++w)
      for (int g = 0; g < P::SPLITS; ++g) barrier_init(&m.far_here[w][g], 1);
  barrier_init_fence();
  if (P::CLUSTER > 1)
    for (int w = 0; w < P::OWN; ++w)
      for (int g = 0; g < P::SPLITS; ++g) barrier_expect(&m.far_here[w][g], sizeof m.far[0]);
}

// Calls f with number as a constant.
template <int N, class F>
__device__ __forceinline__ void constant(int number, F f) {
  if constexpr (N == 1)
    f(std::integral_constant<int, 0>{});
  else if (number == N - 1)
    f(std::integral_constant<int, N - 1>{});
  else
    constant<N - 1>(number, f);
}

template <class P>
__global__ void __launch_bounds__(P::THREADS, P::RESIDENT)
    swap_keys(Attention a, const __grid_constant__ Maps maps) {
  constexpr int D = P::D, KEYS = P::KEYS, SLOTS = P::SLOTS, BOXES = P::BOXES, PARTS = P::PARTS;
  auto& m = shared_memory<typename P::Shared>();
  // From lane 0, so that the compiler knows it to be the same in all of a warp.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32, group = warp / 4, split = group % P::SPLITS;
  const int rank = P::CLUSTER > 1 ? cluster_rank() : 0, part = rank * P::SPLITS + split;
  const int strip = group / P::SPLITS * 4 + warp % 4;  // of this warp
  const int first = blockIdx.x / P::CLUSTER * P::M, head = blockIdx.y, row = first + 16 * strip;
  const int slices = ceil_div(a.keys(first + P::M), KEYS);

  auto fetch_k = [&](int g, int slot, int slice) {
    for (int b = 0; b < BOXES; ++b) {
      barrier_expect(&m.k_here[g][slot][b], Slabs<64, D>::BYTES);
      m.slot[g][slot].k[b].fetch(&maps.k, &m.k_here[g][slot][b], slice * KEYS + 64 * b, head);
    }
  };
  auto fetch_v = [&](int g, int slot, int slice) {
    for (int b = 0; b < BOXES; ++b) {
      barrier_expect(&m.v_here[g][slot][b], Slabs<64, D>::BYTES);
      m.slot[g][slot].v[b].fetch(&maps.v, &m.v_here[g][slot][b], slice * KEYS + 64 * b, head);
    }
  };
  if (OVERLAP) let_next_kernel_start();
  if (threadIdx.x == 0) {
    prefetch_map(&maps.q), prefetch_map(&maps.k), prefetch_map(&maps.v);
    init_barriers<P>(m);
    if (OVERLAP) wait_for_earlier_kernels();
    barrier_expect(&m.q_here, P::ROWS * Slabs<64, D>::BYTES);
    for (int r = 0; r < P::ROWS; ++r) m.q[r].fetch(&maps.q, &m.q_here, first + 64 * r, head);
    // All of K before V, and what is needed first before the rest.
    for (int i = 0; i < SLOTS; ++i) {
      for (int g = 0; g < P::SPLITS; ++g) {
        int slice = rank * P::SPLITS + g + i * PARTS;
        if (slice < slices) fetch_k(g, i, slice);
      }
      for (int g = 0; g < P::SPLITS; ++g) {
        int slice = rank * P::SPLITS + g + i * PARTS;
        if (slice < slices) fetch_v(g, i, slice);
      }
    }
  }
  __syncwarp();
  if (P::CLUSTER > 1) cluster_arrive_relaxed();
  __syncthreads();
  if (OVERLAP) wait_for_earlier_kernels();

  flash::Folded folded(a.scale);
  flash::Rows<D> rows;
  rows.clear();
  barrier_wait(&m.q_here, 0);
  if (folded.sign) {
    for (int r = 0; r < P::ROWS; ++r)
      warpgroup::apply_sign(m.q[r], folded.sign, threadIdx.x, P::THREADS);
    __syncthreads();
  }
  // This warp is done with K or V of a slot; the last one lets thread 0 of the split fetch the next.
  auto release = [&](Barrier* free, unsigned parity, auto fetch) {
    __syncwarp();
    if (lane == 0) barrier_arrive(free);
    if (group < P::SPLITS && threadIdx.x % 128 == 0) barrier_wait(free, parity), fetch();
    __syncwarp();
  };

  int round = 0;
  for (int slice = part; slice < slices; slice += PARTS, ++round) {
    const int slot = round % SLOTS, parity = round / SLOTS % 2, later = slice + SLOTS * PARTS;
    auto& tile = m.slot[split][slot];
    float s[BOXES][8][4];
    uint32_t p[BOXES][4][4];
#pragma unroll
    for (int b = 0; b < BOXES; ++b) {
      barrier_wait(&m.k_here[split][slot][b], parity);
      wgmma_fence();
      warpgroup::start_scores<64, D>(s[b], m.q[group / P::SPLITS], 0, tile.k[b]);
      wgmma_commit();
    }
    wgmma_wait<0>();
#pragma unroll
    for (int b = 0; b < BOXES; ++b) hold(s[b]);
    if (later < slices)
      release(&m.k_free[split][slot], parity, [&] { fetch_k(split, slot, later); });
    if (flash::at_edge<KEYS>(a, row, slice * KEYS)) {
#pragma unroll
      for (int b = 0; b < BOXES; ++b) flash::mask<64>(a, s[b], row, slice * KEYS + 64 * b, lane);
    }
    float offset[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float max = -INFINITY;
#pragma unroll
      for (int b = 0; b < BOXES; ++b)
#pragma unroll
        for (int n = 0; n < 8; ++n) max = fmaxf(max, fmaxf(s[b][n][2 * i], s[b][n][2 * i + 1]));
      offset[i] = fmaxf(flash::quad_max(max) * folded.factor, rows.max[i]);
    }
    if (round > 0) {
      float correction[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        correction[i] = rows.max[i] == -INFINITY ? 0.0f : exp2_approx(rows.max[i] - offset[i]);
        rows.sum[i] *= correction[i];
      }
      rows.rescale(correction);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      rows.max[i] = offset[i];
      offset[i] = offset[i] == -INFINITY ? 0.0f : -offset[i];  // exp2(-inf + 0) = 0, not NaN
    }
    hold(rows.out);
#pragma unroll
    for (int b = 0; b < BOXES; ++b) {
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          rows.sum[i / 2] += s[b][n][i] =
              exp2_approx(fmaf(s[b][n][i], folded.factor, offset[i / 2]));
      warpgroup::pack_probabilities<64>(p[b], s[b]);
      barrier_wait(&m.v_here[split][slot][b], parity);
      wgmma_fence();
      warpgroup::start_pv<64, D>(rows.out, p[b], tile.v[b]);
      wgmma_commit();
    }
    wgmma_wait<0>();
    hold(rows.out);
    if (later < slices)
      release(&m.v_free[split][slot], parity, [&] { fetch_v(split, slot, later); });
  }

  Stats stats = {{rows.max[0], rows.max[1]}, {rows.sum[0], rows.sum[1]}};
  constant<P::SPLITS>(split, [&](auto number) {
    constexpr int MINE = decltype(number)::value, TILES = P::TILES;
    float(*out)[4] = &rows.out[MINE * TILES];
    if constexpr (P::SPLITS > 1) {
#pragma unroll
      for (int to = 0; to < P::SPLITS; ++to)
        if (to != MINE) {
          auto& mail = m.between(strip, MINE, to);
          P::Near::write(&rows.out[to * TILES], stats,
                         [&](int line, float4 x) { mail.line[line][lane] = x; });
        }
      __syncwarp();
      if (lane == 0) barrier_arrive(&m.near_here[strip]);
      barrier_wait(&m.near_here[strip], 0);
#pragma unroll
      for (int from = 0; from < P::SPLITS; ++from)
        if (from != MINE) m.between(strip, from, MINE).merge_into(out, stats, lane);
    }
    if constexpr (P::CLUSTER > 1) {
      auto& mail = m.far[strip % P::OWN * P::SPLITS + MINE];
      Barrier* here = &m.far_here[strip % P::OWN][MINE];
      cluster_wait();  // the other block has started, and its barriers are there
      if (strip / P::OWN != rank) {
        P::Far::write(out, stats, [&](int line, float4 x) {
          store_to_block(1 - rank, &mail.line[line][lane], x, here);
        });
        return;
      }
      barrier_wait(here, 0);
      mail.merge_into(out, stats, lane);
    }
    half* o = head_of<D>(a.o, a, head) + MINE * TILES * 8 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = row + lane / 4 + 8 * i;
      const float scale = 1.0f / flash::quad_sum(stats.sum[i]);
      if (r >= a.length) continue;
#pragma unroll
      for (int n = 0; n < TILES; ++n)
        *reinterpret_cast<half2*>(o + static_cast<size_t>(r) * D + 8 * n) =
            __floats2half2_rn(out[n][2 * i] * scale, out[n][2 * i + 1] * scale);
    }
  });
}

template <class P>
cudaError_t start(const Attention& a, cudaStream_t stream) {
  Maps maps;
  if (cudaError_t e = tensor_map(&maps.q, a.q, P::D, a, 64)) return e;
  if (cudaError_t e = tensor_map(&maps.k, a.k, P::D, a, 64)) return e;
  if (cudaError_t e = tensor_map(&maps.v, a.v, P::D, a, 64)) return e;
  return launch<swap_keys<P>>({dim3(ceil_div(a.length, P::M) * P::CLUSTER, a.heads), P::THREADS,
                               sizeof(typename P::Shared), P::CLUSTER, OVERLAP},
                              stream, a, maps);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    int sms = 0;
    if (cudaError_t e = device_attribute<cudaDevAttrMultiProcessorCount>(&sms)) return e;
    bool alone = 2 * ceil_div(a.length, 64) * a.heads > sms;
    if constexpr (D == 128)
      return alone ? start<Plan<128, 1, 2, 64, 2, 1, 1>>(a, args->stream)
                   : start<Plan<128, 1, 2, 64, 1, 2, 1>>(a, args->stream);
    else if (alone)
      return start<PLAN_V>(a, args->stream);
    else if (a.length <= 256)
      return start<PLAN_A>(a, args->stream);
    else
      return start<PLAN_B>(a, args->stream);
  });
}
