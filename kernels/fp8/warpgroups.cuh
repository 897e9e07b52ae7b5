/* Attention of e4m3 codes: attention/warpgroups with products of 32 codes where there were 16 halves.

   Tiles are 128 keys, 16 KB each of K and of V transposed (128 rows of d). A warpgroup starts the scores of
   a tile together with P V of the tile before, and the softmax runs beside the latter. Probabilities go
   into the left operand where they are (e4m3.cuh).

   e4m3 has 2^-9 … 448: probabilities are 2^5 times as large as they are relative to the maximum, and
   with a maximum that is raised late (by online_max.cuh when a score lies 2^3 above it) up to 2^8 times.
*/
#pragma once
#include "codes.cuh"
#include "../attention/warpgroups/warpgroups.cuh"

namespace fp8 {

constexpr float SHIFT = 5.0f;  // as an exponent
constexpr int N = 128;         // keys a tile
constexpr int TURNERS = 3;     // warps that transpose V, beside the producer's

// What a rung's Plan starts from: two warpgroups of 64 rows, the true maximum after every tile.
template <bool CAUSAL_>
struct Basic : warpgroups::Basic<D, 2, N, 4, CAUSAL_> {
  using Turn = TurnLines;  // how V is transposed before, where RAW is 0
  static constexpr int RAW = 0;  // stages of V as it is, that the producer's warps transpose
  static constexpr bool TOGETHER = false;  // packed while the rest of a tile's exponentials are computed
};

template <int STAGES>
struct Raw {
  Rows128 raw[STAGES];
  Barrier raw_here[STAGES], raw_free[STAGES];
};
template <>
struct Raw<0> {};

template <class P>
struct Shared {
  Rows64 q[P::Q_SLOTS][P::GROUPS];
  Rows128 k[P::STAGES], v[P::STAGES];
  Raw<P::RAW> as_it_is;
  Barrier q_here[P::Q_SLOTS][P::GROUPS], q_free[P::Q_SLOTS][P::GROUPS];
  Barrier k_here[P::STAGES], k_free[P::STAGES], v_here[P::STAGES], v_free[P::STAGES];
};

using warpgroups::Maps;
using warpgroups::Place;
template <class P>
using Work = warpgroups::Work<P>;

// Registers of a thread that multiplies, and of one of the others: warpgroups::Registers.
template <class P>
struct Registers {
  static constexpr int THREADS = 128 * (P::GROUPS + 1), AT_LAUNCH = 65536 / THREADS / 8 * 8;
  static constexpr int LEFT = P::RAW ? 40 : 24;
  static constexpr int MINE = (AT_LAUNCH + (AT_LAUNCH - LEFT) / P::GROUPS) / 8 * 8;
  static_assert(MINE <= 240 && (MINE - AT_LAUNCH) * P::GROUPS <= AT_LAUNCH - LEFT, "");
};

template <class P>
__device__ __forceinline__ void produce(const Input& a, Shared<P>& m, const Maps& maps, int works) {
  Place<P::STAGES> at;
  Place<P::RAW ? P::RAW : 1> raw;
  Place<P::Q_SLOTS> q;
  bool waited = P::RAW > 0;
  for (int w = blockIdx.x; w < Work<P>::end(works); w += gridDim.x) {
    Work<P> work(a, w, works);
    for (int g = 0; g < P::GROUPS; ++g) {
      barrier_wait(&m.q_free[q.slot][g], q.parity ^ 1);
      barrier_expect(&m.q_here[q.slot][g], Rows64::BYTES);
      m.q[q.slot][g].fetch(&maps.q, &m.q_here[q.slot][g], work.first + 64 * g, work.head);
    }
    q.next();
    for (int tile = 0; tile < work.tiles; ++tile, at.next()) {
      barrier_wait(&m.k_free[at.slot], at.parity ^ 1);
      barrier_expect(&m.k_here[at.slot], Rows128::BYTES);
      m.k[at.slot].fetch(&maps.k, &m.k_here[at.slot], N * tile, work.head);
      if constexpr (P::RAW > 0) {
        auto& v = m.as_it_is;
        barrier_wait(&v.raw_free[raw.slot], raw.parity ^ 1);
        barrier_expect(&v.raw_here[raw.slot], Rows128::BYTES);
        v.raw[raw.slot].fetch(&maps.v, &v.raw_here[raw.slot], N * tile, work.head);
        raw.next();
      } else {
        if (!waited) wait_for_earlier_kernels();  // that write V: Q and K are nobody's output
        waited = true;
        barrier_wait(&m.v_free[at.slot], at.parity ^ 1);
        barrier_expect(&m.v_here[at.slot], Rows128::BYTES);
        tma_load(&m.v[at.slot], &maps.v, &m.v_here[at.slot], N / 2 * tile, 0, work.head);
      }
    }
  }
}

// Warp `number` of those that transpose V: 32 keys by 16 bytes at a time.
template <class P>
__device__ __forceinline__ void turn_v(const Input& a, Shared<P>& m, int works, int number) {
  constexpr int PIECES = N / 32 * (D / 16), EACH = ceil_div(PIECES, TURNERS);
  Place<P::STAGES> to;
  Place<P::RAW> from;
  auto& v = m.as_it_is;
  const int lane = threadIdx.x % 32;
  for (int w = blockIdx.x; w < Work<P>::end(works); w += gridDim.x) {
    Work<P> work(a, w, works);
    for (int tile = 0; tile < work.tiles; ++tile, to.next(), from.next()) {
      barrier_wait(&v.raw_here[from.slot], from.parity);
      barrier_wait(&m.v_free[to.slot], to.parity ^ 1);
#pragma unroll 4
      for (int i = 0; i < EACH; ++i) {
        const int piece = number + TURNERS * i, keys = piece / (D / 16), chunk = piece % (D / 16);
        if (piece >= PIECES) break;
        turn(m.v[to.slot], v.raw[from.slot], 32 * keys, chunk, lane);
      }
      fence_for_async();
      __syncwarp();
      if (lane == 0) barrier_arrive(&m.v_here[to.slot]), barrier_arrive(&v.raw_free[from.slot]);
    }
  }
}

// One warp of a warpgroup that multiplies.
template <class P>
class Consumer {
  static constexpr int TILES = N / 8, FIRST_HALF = P::TOGETHER ? TILES / 2 : TILES;
  using Scores = float[TILES][4];
  using Probabilities = uint32_t[N / 32][4];
  const Input& a;
  Shared<P>& m;
  const int group, lane;
  const float factor;
  flash::Rows<D> rows;
  Place<P::STAGES> k_at, v_at;
  Place<P::Q_SLOTS> q_at;
  int row;  // of this warp's sixteen, the first
  float correction[2];
  bool raised;  // the maximum: the output has to be corrected

 public:
  __device__ __forceinline__ Consumer(const Input& a, Shared<P>& m, int group)
      : a(a), m(m), group(group), lane(threadIdx.x % 32),
        factor(a.scale * LOG2E * a.scales[0] * a.scales[1]) {}

  __device__ __forceinline__ void run(int works) {
    Scores s;
    Probabilities p;
    for (int w = blockIdx.x; w < works; w += gridDim.x) {
      Work<P> work(a, w, works);
      row = work.first + 64 * group + threadIdx.x % 128 / 32 * 16;
      const int tiles = P::CAUSAL ? ceil_div(a.keys(work.first + 64 * (group + 1)), N) : work.tiles;
      rows.clear();
      begin(s);
      attend(s, p, tiles);
      for (int tile = tiles; P::CAUSAL && tile < work.tiles; ++tile) leave_out();
      const float v_scale = a.scales[2];
      for (float& sum : rows.sum) sum = flash::quad_sum(sum) / v_scale;
      rows.store(head_of<D>(a.o, a, work.head), row, a.length, lane);
    }
  }

 private:
  __device__ __forceinline__ void release(Barrier* free) {  // one arrival a warp
    __syncwarp();
    if (lane == 0) barrier_arrive(free);
    __syncwarp();
  }
  __device__ __forceinline__ void wait_k() { barrier_wait(&m.k_here[k_at.slot], k_at.parity); }
  __device__ __forceinline__ void wait_v() { barrier_wait(&m.v_here[v_at.slot], v_at.parity); }
  __device__ __forceinline__ void free_k() { release(&m.k_free[k_at.slot]), k_at.next(); }
  __device__ __forceinline__ void free_v() { release(&m.v_free[v_at.slot]), v_at.next(); }
  __device__ __forceinline__ void leave_out() {
    wait_k(), free_k();
    wait_v(), free_v();
  }

  // The first scores of the next rows.
  __device__ __forceinline__ void begin(Scores& s) {
    barrier_wait(&m.q_here[q_at.slot][group], q_at.parity);
    wait_k();
    wgmma_fence();
    start_scores(s);
  }
  __device__ __forceinline__ void start_scores(Scores& s) {
#pragma unroll
    for (int d = 0; d < D; d += 32)
      wgmma_e4m3(s, Operand(&m.q[q_at.slot][group], 0).plus(d),
                 Operand(&m.k[k_at.slot], 0).plus(d), d > 0);
    wgmma_commit();
  }
  __device__ __forceinline__ void start_pv(const Probabilities& p) {
#pragma unroll
    for (int n = 0; n < N / 32; ++n)
      wgmma_e4m3(rows.out, p[n], Operand(&m.v[v_at.slot], 0).plus(32 * n), 1);
    wgmma_commit();
  }
  static __device__ __forceinline__ void pack(uint32_t (&p)[4], const float (&s)[TILES][4], int n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int tile = 4 * n + i / 2 * 2, at = i % 2 * 2;
      p[i] = pack_e4m3(s[tile][at], s[tile][at + 1], s[tile + 1][at], s[tile + 1][at + 1]);
    }
  }

  // The maximum of s, the scores of keys from `key` on, is looked for, and raised if it has to be.
  template <bool FIRST>
  __device__ __forceinline__ void find_max(Scores& s, int key) {
    float top[2];
    if (flash::at_edge<N>(a, row, key)) flash::mask<N>(a, s, row, key, lane);
    raised = false;
    online::lane_max(top, s);
    if (FIRST || P::MAXIMUM == Maximum::EVERY || online::too_low(rows, top, factor)) {
      for (float& x : top) x -= SHIFT / factor;
      online::raise(rows, top, factor, correction);
      raised = true;
    }
  }
  // Columns 8 n … of s become probabilities.
  __device__ __forceinline__ void exponentials(Scores& s, float (&sum)[2][2], int n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[n][i] = exp2_approx(fmaf(s[n][i], factor, -rows.max[i / 2]));
      sum[i / 2][n % 2] += s[n][i];
    }
  }

  // Scores of the first tile are on their way; P V of the last is when it returns.
  __device__ __forceinline__ void attend(Scores& s, Probabilities& p, int tiles) {
    wgmma_wait<0>();
    hold(s);
    free_k();
    find_max<true>(s, 0);
    float sum[2][2] = {};
#pragma unroll
    for (int n = 0; n < TILES; ++n) exponentials(s, sum, n);
#pragma unroll
    for (int n = 0; n < N / 32; ++n) pack(p[n], s, n);
    for (int tile = 1; tile < tiles; ++tile) {
      wait_k();
      hold(rows.out);
      wgmma_fence();
      start_scores(s);
      wait_v();
      start_pv(p);  // of the tile before
      wgmma_wait<1>();
      hold(s);
      free_k();
      find_max<false>(s, N * tile);
      if (raised)
        for (int i = 0; i < 2; ++i) sum[i][0] *= correction[i], sum[i][1] *= correction[i];
#pragma unroll
      for (int n = 0; n < FIRST_HALF; ++n) exponentials(s, sum, n);
      wgmma_wait_after<0>(sum[0][0] + sum[1][0]);  // the softmax runs beside P V
      hold(rows.out);
      free_v();
      if (P::MAXIMUM == Maximum::EVERY || raised) rows.rescale(correction);
#pragma unroll
      for (int n = FIRST_HALF; n < TILES; ++n) {
        exponentials(s, sum, n);
        if (n % 4 == 3) pack(p[(n - FIRST_HALF) / 4], s, (n - FIRST_HALF) / 4);
      }
#pragma unroll
      for (int n = (TILES - FIRST_HALF) / 4; n < N / 32; ++n) pack(p[n], s, n);
    }
    for (int i = 0; i < 2; ++i) rows.sum[i] = sum[i][0] + sum[i][1];
    release(&m.q_free[q_at.slot][group]), q_at.next();
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
__global__ void __launch_bounds__(Registers<P>::THREADS, 1)
    attend(Input a, const __grid_constant__ Maps maps, int works) {
  auto& m = shared_memory<Shared<P>>();
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0);
  if (threadIdx.x == 0) {
    prefetch_map(&maps.q), prefetch_map(&maps.k), prefetch_map(&maps.v);
    for (int i = 0; i < P::Q_SLOTS; ++i)
      for (int g = 0; g < P::GROUPS; ++g)
        barrier_init(&m.q_here[i][g], 1), barrier_init(&m.q_free[i][g], 4);
    for (int i = 0; i < P::STAGES; ++i) {
      barrier_init(&m.k_here[i], 1), barrier_init(&m.k_free[i], 4 * P::GROUPS);
      barrier_init(&m.v_here[i], P::RAW ? TURNERS : 1);
      barrier_init(&m.v_free[i], 4 * P::GROUPS);
    }
    if constexpr (P::RAW > 0)
      for (int i = 0; i < P::RAW; ++i)
        barrier_init(&m.as_it_is.raw_here[i], 1), barrier_init(&m.as_it_is.raw_free[i], TURNERS);
    barrier_init_fence();
  }
  __syncthreads();

  if (group == P::GROUPS) {
    give_up_registers<Registers<P>::LEFT>();
    const int warp = threadIdx.x % 128 / 32;
    if (threadIdx.x % 128 == 0) produce<P>(a, m, maps, works);
    if constexpr (P::RAW > 0)
      if (warp > 0) turn_v<P>(a, m, works, warp - 1);
  } else {
    take_registers<Registers<P>::MINE>();
    Consumer<P>(a, m, group).run(works);
  }
}

template <class P>
cudaError_t start_attention(const Input& a, const void* v, const Attention& v_shape, int v_row,
                            cudaStream_t stream) {
  int sms = 0, works = ceil_div(a.length, 64 * P::GROUPS) * a.heads;
  if (cudaError_t e = device_attribute<cudaDevAttrMultiProcessorCount>(&sms)) return e;
  Maps maps;
  if (cudaError_t e = tensor_map(&maps.q, a.q, D / 2, a, 64)) return e;
  if (cudaError_t e = tensor_map(&maps.k, a.k, D / 2, a, N)) return e;
  if (cudaError_t e = tensor_map(&maps.v, static_cast<const half*>(v), v_row / 2, v_shape, N)) return e;
  return launch<attend<P>>(
      {dim3(min(works, sms)), Registers<P>::THREADS, sizeof(Shared<P>), 1, P::RAW == 0}, stream, a,
      maps, works);
}

// V transposed first, by a launch that attention may begin beside, or by attention itself.
template <class P>
cudaError_t start(const Input& a, cudaStream_t stream) {
  if constexpr (P::RAW > 0) {
    return start_attention<P>(a, a.v, a, D, stream);
  } else {
    const int padded = ceil_div(a.length, 32) * 32;
    Workspace space(static_cast<size_t>(a.heads) * D * padded, stream);
    if (space.error) return space.error;
    using Turn = typename P::Turn;
    const dim3 blocks(ceil_div(padded, 128), a.heads);
    if (cudaError_t e = launch<transpose_v<Turn>>({blocks, TURNING, Turn::SHARED}, stream, a.v,
                                                  static_cast<uint4*>(space.data), a.length, padded))
      return e;
    Attention turned = a;
    turned.length = D;
    return start_attention<P>(a, space.data, turned, padded, stream);
  }
}

// PLAN<CAUSAL>.
template <template <bool> class PLAN>
int start_any(const ProfkitArgs* args) {
  return on_codes(args, [&](const Input& a) {
    return a.causal ? start<PLAN<true>>(a, args->stream) : start<PLAN<false>>(a, args->stream);
  });
}

}  // namespace fp8
