/* 64 queries by two blocks with two warpgroups each, which split the keys and merge in registers.

   Part p of the keys (of four) is slices p, p + 4, … of KEYS: blocks 0 and 1 of a cluster, warpgroups 0
   and 1 of each. A warpgroup attends to its part alone. Then, of each strip of 16 rows, warpgroup g
   takes the columns of half g: warps with the same rows exchange halves through shared memory, and
   strips that the other block finishes go there from registers, as stores that its barrier counts.
*/
#pragma once
#include "mail.cuh"
#include "../../common/prefetch.cuh"
#include "../../common/wgmma_attention.cuh"

#ifndef AHEAD
#define AHEAD 0  // rows go to L2 while tensor maps are on their way; 2: each line once; 3: code too
#endif

namespace merged {

constexpr int M = 64, GROUPS = 2, CLUSTER = 2, PARTS = GROUPS * CLUSTER, THREADS = 128 * GROUPS;
constexpr int LINES_OF_CODE = 288;  // 36 KB: a little more than the longest of these kernels has
constexpr int STRIPS = 4, OWN = STRIPS / CLUSTER;  // of 16 rows: of a cluster, that a block finishes

// KEYS: a slice, in boxes of 64. HALF: the other block gets its parts in fp16.
template <int D_, int KEYS_, bool HALF>
struct Plan {
  static constexpr int D = D_, KEYS = KEYS_, BOXES = KEYS / 64;
  static constexpr int TILES = D / 8 / GROUPS;  // of 8 columns, that a warp finishes
  using Near = Mail<TILES, false>;
  using Far = Mail<TILES, HALF>;
  struct Slot {
    Slabs<64, D> k[BOXES], v[BOXES];
  };
  struct Shared {
    Slabs<M, D> q;
    Slot slot[GROUPS];
    Near near[STRIPS][GROUPS];
    Far far[OWN][GROUPS];
    Barrier q_here, k_here[GROUPS][BOXES], v_here[GROUPS][BOXES], k_free[GROUPS], v_free[GROUPS];
    Barrier far_here[OWN][GROUPS];
  };
  // More than half of an SM: where two blocks fit, those of the next launch come to lie two on one SM
  // while others stay empty, and A takes 3.8 us instead of 3.3.
  static constexpr size_t BYTES = sizeof(Shared) > 114 * 1024 ? sizeof(Shared) : 114 * 1024;
};

struct Maps {
  CUtensorMap q, k, v;
};

template <class P>
__device__ __forceinline__ void init_barriers(typename P::Shared& m) {
  barrier_init(&m.q_here, 1);
  for (int g = 0; g < GROUPS; ++g) {
    for (int b = 0; b < P::BOXES; ++b)
      barrier_init(&m.k_here[g][b], 1), barrier_init(&m.v_here[g][b], 1);
    barrier_init(&m.k_free[g], 4), barrier_init(&m.v_free[g], 4);  // warps
  }
  for (int w = 0; w < OWN; ++w)
    for (int g = 0; g < GROUPS; ++g) barrier_init(&m.far_here[w][g], 1);
  barrier_init_fence();
  for (int w = 0; w < OWN; ++w)
    for (int g = 0; g < GROUPS; ++g) barrier_expect(&m.far_here[w][g], sizeof m.far[w][g]);
}

template <int KEYS, int D>
__device__ __forceinline__ void fetch(Slabs<64, D> (&boxes)[KEYS / 64], Barrier (&here)[KEYS / 64],
                                      const CUtensorMap* map, int slice, int head) {
  for (int b = 0; b < KEYS / 64; ++b) {
    barrier_expect(&here[b], Slabs<64, D>::BYTES);
    boxes[b].fetch(map, &here[b], slice * KEYS + 64 * b, head);
  }
}

// The maximum of a slice's scores and those before; what was summed up before is corrected. Returns in
// `offset` what is to be added to the exponents.
template <int BOXES, int D>
__device__ __forceinline__ void raise_max(flash::Rows<D>& rows, const float (&s)[BOXES][8][4],
                                          float factor, bool first, float (&offset)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float max = -INFINITY;
#pragma unroll
    for (int b = 0; b < BOXES; ++b)
#pragma unroll
      for (int n = 0; n < 8; ++n) max = fmaxf(max, fmaxf(s[b][n][2 * i], s[b][n][2 * i + 1]));
    offset[i] = fmaxf(flash::quad_max(max) * factor, rows.max[i]);
  }
  if (!first) {
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
}

// The columns that the warp of the other group finishes go to it.
template <int MINE, class P>
__device__ __forceinline__ void pass_on(typename P::Shared& m, const float (*all)[4],
                                        const Stats& stats, int strip) {
  auto& for_other = m.near[strip][1 - MINE];
  P::Near::write(all + (1 - MINE) * P::TILES, stats, [&](int line, float4 x) {
    for_other.line[line][threadIdx.x % 32] = x;
  });
}

// Merges the parts of a strip and stores columns [32 MINE …) (D = 64) of the rows that are this block's.
template <int MINE, class P>
__device__ __forceinline__ void finish(const Attention& a, typename P::Shared& m, float (*all)[4],
                                       Stats stats, int strip, int row, int head) {
  constexpr int TILES = P::TILES, D = P::D;
  const int lane = threadIdx.x % 32, rank = cluster_rank();
  float(*out)[4] = all + MINE * TILES;
  m.near[strip][MINE].merge_into(out, stats, lane);

  auto& mail = m.far[strip % OWN][MINE];
  Barrier* here = &m.far_here[strip % OWN][MINE];
  __syncwarp();
  cluster_wait();  // the other block has started, and its barriers are there
  if (strip / OWN != rank) {
    P::Far::write(out, stats, [&](int line, float4 x) {
      store_to_block(1 - rank, &mail.line[line][lane], x, here);
    });
    return;
  }
  barrier_wait(here, 0);
  mail.merge_into(out, stats, lane);
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
}

// EARLY: may start before the kernel before has ended.
template <class P, bool EARLY>
__global__ void __launch_bounds__(THREADS, 1)
    merged_parts(Attention a, const __grid_constant__ Maps maps) {
  constexpr int D = P::D, KEYS = P::KEYS, BOXES = P::BOXES;
  auto& m = shared_memory<typename P::Shared>();
  const int lane = threadIdx.x % 32, group = threadIdx.x / 128, strip = threadIdx.x / 32 % 4;
  const int rank = cluster_rank(), part = rank * GROUPS + group;
  const int first = blockIdx.x / CLUSTER * M, head = blockIdx.y, row = first + 16 * strip;
  const int slices = ceil_div(a.keys(first + M), KEYS);

  if (EARLY) let_next_kernel_start();
  if (AHEAD == 3)
    prefetch_code<LINES_OF_CODE>(reinterpret_cast<const void*>(&merged_parts<P, EARLY>), threadIdx.x);
  if (AHEAD >= 2 && threadIdx.x >= 32) {  // half of the cluster's rows
    constexpr int AT_ONCE = THREADS - 32, HALF_OF_M = M / CLUSTER;
    const int thread = threadIdx.x - 32, from = first + rank * HALF_OF_M;
    prefetch_lines<D, AT_ONCE>(head_of<D>(a.q, a, head), from, HALF_OF_M, a.length, thread);
    prefetch_lines<D, AT_ONCE>(head_of<D>(a.k, a, head), from, HALF_OF_M, a.length, thread);
    prefetch_lines<D, AT_ONCE>(head_of<D>(a.v, a, head), from, HALF_OF_M, a.length, thread);
  }
  if (AHEAD == 1 && threadIdx.x == 32) {  // of another warp than the one that fetches
    constexpr int MINE = GROUPS * KEYS;  // keys of this block: neighbouring slices
    const int keys = a.keys(first + M);
    prefetch_rows<D>(head_of<D>(a.q, a, head), first, M, a.length);
    prefetch_rows<D>(head_of<D>(a.k, a, head), rank * MINE, MINE, keys);
    prefetch_rows<D>(head_of<D>(a.v, a, head), rank * MINE, MINE, keys);
  }
  if (threadIdx.x == 0) {
    prefetch_map(&maps.q), prefetch_map(&maps.k), prefetch_map(&maps.v);
    init_barriers<P>(m);
    if (EARLY) wait_for_earlier_kernels();
    barrier_expect(&m.q_here, Slabs<M, D>::BYTES);
    m.q.fetch(&maps.q, &m.q_here, first, head);
    for (int g = 0; g < GROUPS; ++g)  // all of K before V
      if (int slice = rank * GROUPS + g; slice < slices)
        fetch<KEYS>(m.slot[g].k, m.k_here[g], &maps.k, slice, head);
    for (int g = 0; g < GROUPS; ++g)
      if (int slice = rank * GROUPS + g; slice < slices)
        fetch<KEYS>(m.slot[g].v, m.v_here[g], &maps.v, slice, head);
  }
  __syncwarp();
  cluster_arrive_relaxed();
  __syncthreads();
  if (EARLY) wait_for_earlier_kernels();

  flash::Folded folded(a.scale);
  flash::Rows<D> rows;
  rows.clear();
  barrier_wait(&m.q_here, 0);
  if (folded.sign) {
    warpgroup::apply_sign(m.q, folded.sign, threadIdx.x, THREADS);
    __syncthreads();
  }
  // This warp is done with K or V; thread 0 of its warpgroup waits for the others and fetches the next.
  auto release = [&](Barrier* free, unsigned parity, auto fetch_next) {
    __syncwarp();
    if (lane == 0) barrier_arrive(free);
    if (threadIdx.x % 128 == 0) barrier_wait(free, parity), fetch_next();
    __syncwarp();
  };

  auto& tile = m.slot[group];
  int round = 0;
  for (int slice = part; slice < slices; slice += PARTS, ++round) {
    const int parity = round % 2, next = slice + PARTS;
    float s[BOXES][8][4], offset[2];
    uint32_t p[BOXES][4][4];
#pragma unroll
    for (int b = 0; b < BOXES; ++b) {
      barrier_wait(&m.k_here[group][b], parity);
      wgmma_fence();
      warpgroup::start_scores<64, D>(s[b], m.q, 0, tile.k[b]);
      wgmma_commit();
    }
    wgmma_wait<0>();
#pragma unroll
    for (int b = 0; b < BOXES; ++b) hold(s[b]);
    if (next < slices)
      release(&m.k_free[group], parity,
              [&] { fetch<KEYS>(tile.k, m.k_here[group], &maps.k, next, head); });
    if (flash::at_edge<KEYS>(a, row, slice * KEYS)) {
#pragma unroll
      for (int b = 0; b < BOXES; ++b) flash::mask<64>(a, s[b], row, slice * KEYS + 64 * b, lane);
    }
    raise_max<BOXES>(rows, s, folded.factor, round == 0, offset);
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
      barrier_wait(&m.v_here[group][b], parity);
      wgmma_fence();
      warpgroup::start_pv<64, D>(rows.out, p[b], tile.v[b]);
      wgmma_commit();
    }
    wgmma_wait<0>();
    hold(rows.out);
    if (next < slices)
      release(&m.v_free[group], parity,
              [&] { fetch<KEYS>(tile.v, m.v_here[group], &maps.v, next, head); });
  }

  Stats stats = {{rows.max[0], rows.max[1]}, {rows.sum[0], rows.sum[1]}};
  if (group == 0)
    pass_on<0, P>(m, rows.out, stats, strip);
  else
    pass_on<1, P>(m, rows.out, stats, strip);
  __syncthreads();
  if (group == 0)
    finish<0, P>(a, m, rows.out, stats, strip, row, head);
  else
    finish<1, P>(a, m, rows.out, stats, strip, row, head);
}

// early: of a kernel that may, whether it does in this launch.
template <class P, bool EARLY>
cudaError_t start(const Attention& a, cudaStream_t stream, bool early = EARLY) {
  Maps maps;
  if (cudaError_t e = tensor_map(&maps.q, a.q, P::D, a, M)) return e;
  if (cudaError_t e = tensor_map(&maps.k, a.k, P::D, a, 64)) return e;
  if (cudaError_t e = tensor_map(&maps.v, a.v, P::D, a, 64)) return e;
  return launch<merged_parts<P, EARLY>>(
      {dim3(ceil_div(a.length, M) * CLUSTER, a.heads), THREADS, P::BYTES, CLUSTER, early}, stream,
      a, maps);
}

}  // namespace merged
