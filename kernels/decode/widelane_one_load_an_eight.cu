/* lanerow with loads of 16 bytes: one instruction where there were four.

   Its eights are structs of four half2, which are copied pair by pair: four LDG.E of four bytes a lane,
   each of which asks L1 for the same sectors. Here a row is read as uint4 (LDG.E.128), and what a load
   holds is taken apart in registers. Nothing else differs: the sectors that are asked for fall by four,
   and what is left are those of eight query heads, one after the other.

   profkit expected 1.51x (1.25 to 1.69) of it; what came: 318 us after 354, 1.11x. L1 falls from its
   roof, and the same warps now wait for L2, with as few loads under way as before. Loads fall to a third,
   not less: the table of pages is read for each key, four bytes at a time.

   after: lanerow      fixes: uncoalesced-access      arch: 80+
   moves: instructions<0.95x      moves-not: inst_global_load<0.3x
   budget: regs=168 smem=80K spills=0 stack=0
*/
#include "cache.cuh"

constexpr int WARPS = 8, THREADS = 32 * WARPS, KEYS = 4;  // KEYS: of a group of lanes at a time

template <int D>
struct Shared {
  static constexpr int LANES = D / 8, GROUPS = THREADS / LANES;
  float max[GROUPS], sum[GROUPS], o[GROUPS][D];
};

struct alignas(16) Eight {
  half2 pair[4];
};

template <int D>
__global__ void __launch_bounds__(THREADS) wide_lanes(Decode c) {
  constexpr int LANES = Shared<D>::LANES, GROUPS = Shared<D>::GROUPS;
  auto& m = shared_memory<Shared<D>>();
  const int lane = threadIdx.x % LANES, mine = threadIdx.x / LANES;
  const int head = blockIdx.x, sequence = blockIdx.y;
  const int key_head = head / c.group(), length = c.length(sequence);
  const size_t query = (static_cast<size_t>(sequence) * c.heads + head) * D;
  auto eight = [&](const half* p, size_t row) {
    Eight packed;
    *reinterpret_cast<uint4*>(&packed) = reinterpret_cast<const uint4*>(p + row * D)[lane];
    return packed;
  };
  float q[8], out[8] = {}, max = -INFINITY, sum = 0.0f;
  Eight packed = eight(c.q, query / D);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float2 two = __half22float2(packed.pair[i / 2]);
    q[i] = (i % 2 ? two.y : two.x) * c.factor;
  }

  // All lanes of a warp go round equally often: they shuffle together.
  for (int first = 0; first < length; first += GROUPS * KEYS) {
    Eight k[KEYS], v[KEYS];
#pragma unroll
    for (int j = 0; j < KEYS; ++j) {
      int key = first + j * GROUPS + mine;
      size_t row = key < length ? c.at(sequence, key_head, key) : 0;
      if (key < length) k[j] = eight(c.k, row), v[j] = eight(c.v, row);
    }
    float s[KEYS], higher = max;
#pragma unroll
    for (int j = 0; j < KEYS; ++j) {
      s[j] = 0.0f;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float2 two = __half22float2(k[j].pair[i]);
        s[j] += q[2 * i] * two.x + q[2 * i + 1] * two.y;
      }
#pragma unroll
      for (int i = LANES / 2; i > 0; i /= 2) s[j] += __shfl_xor_sync(0xffffffffu, s[j], i);
      if (first + j * GROUPS + mine >= length) s[j] = -INFINITY;
      higher = fmaxf(higher, s[j]);
    }
    if (higher == -INFINITY) continue;  // this group of lanes has seen no key
    float correction = exp2_approx(max - higher);
    max = higher;
    sum *= correction;
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] *= correction;
#pragma unroll
    for (int j = 0; j < KEYS; ++j)
      if (first + j * GROUPS + mine < length) {
        float p = exp2_approx(s[j] - max);
        sum += p;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float2 two = __half22float2(v[j].pair[i]);
          out[2 * i] += p * two.x, out[2 * i + 1] += p * two.y;
        }
      }
  }

  if (lane == 0) m.max[mine] = max, m.sum[mine] = sum;
#pragma unroll
  for (int i = 0; i < 8; ++i) m.o[mine][8 * lane + i] = out[i];
  __syncthreads();
  if (threadIdx.x >= D) return;
  float top = -INFINITY, total = 0.0f, o = 0.0f;
  for (int g = 0; g < GROUPS; ++g) top = fmaxf(top, m.max[g]);
  for (int g = 0; g < GROUPS; ++g) {
    float weight = exp2_approx(m.max[g] - top);
    total += weight * m.sum[g], o += weight * m.o[g][threadIdx.x];
  }
  c.o[query + threadIdx.x] = __float2half(o / total);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_cache(args, [&](const Decode& c, auto d) {
    constexpr int D = decltype(d)::value;
    return int{launch<wide_lanes<D>>({dim3(c.heads, c.batch), THREADS, sizeof(Shared<D>)},
                                    args->stream, c)};
  });
}
