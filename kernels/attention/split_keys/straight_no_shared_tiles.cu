/* splitk with Q, K and V straight into registers, and parts that are added up in halves.

   With a cold L2 splitk was the fastest at A: it needs no tensor map and no cluster. What it does between
   the first load and the first product is a trip of its own: cp.async to shared memory, a wait, a
   barrier, ldmatrix. A sum of products does not ask for its order, so a lane may take any columns of Q
   and K as long as both agree: sixteen bytes of a row, as they lie in memory, are its part of two
   products of mma.sync. V needs the pairs of keys that one register holds: two rows and a PRMT a
   register. So each warp starts all its loads with its first instructions, nothing waits for another
   warp, and shared memory is there for the merge alone. That was 64 KB written and 64 KB read, at 128
   bytes a cycle a thousand cycles; in halves, brought into their range by a power of two, it is half of
   it. A lane ends with eight neighbouring columns, so lines are 16 bytes, in the merge and the output.

   Expected before it was measured: shared wavefronts below a third of splitk's, instructions below 0.7. At
   A, per call: 500 cycles of merge less and some 150 of cp.async, barrier and ldmatrix: 0.3 us of 4.2, cold
   as well as warm; cold 4.0 us, where 2.0 times SDPA's best backend would be 4.1 to 4.2. At B and V less
   than pays: each block still reads all keys of its head, 17 MB through L2.

   What came: shared wavefronts 0.37 of splitk's, instructions 0.78, and no time. In one process, at A, B and
   V: warm 4.31, 5.96 and 10.76 us, splitk 4.22, 5.38 and 9.65; cold 5.21, 6.49 and 11.82, splitk 4.72, 5.90
   and 10.29. A third of the warps' time is the wait for these loads (long_scoreboard), which splitk does
   not show: cp.async leaves the way through L1's data stage to registers out, and reads Q once a
   block, where here each of eight warps does. What the merge saved goes there: a negative.

   after: splitk      arch: 80+      case: A      moves: shared_wavefronts<0.4x
   moves-not: instructions<0.75x
   budget: regs=255 smem=34K spills=0 stack=0
*/
#include "../../common/flash.cuh"

constexpr int WARPS = 8, THREADS = 32 * WARPS;

// KEYS: keys a warp and round. LOOP: there may be more than one round.
template <int D_, int KEYS_, bool LOOP_>
struct Plan {
  static constexpr int D = D_, KEYS = KEYS_, STRIPS = 128 / D, ROWS = 16 * STRIPS;
  static constexpr bool LOOP = LOOP_;
  static constexpr int CHUNKS = D / 8;  // of 16 bytes, in a row
  struct Shared {
    uint4 part[WARPS][ROWS][CHUNKS];  // scaled by their sums; chunk c of row r lies at c ^ r % 2
    float4 stats[ROWS][WARPS / 2];    // maximum and sum, of two warps
  };
};

// Chunk `chunk` of a row, or zeros from `end` on.
template <int D>
__device__ __forceinline__ uint4 chunk_of(const half* matrix, int row, int end, int chunk) {
  if (row >= end) return make_uint4(0, 0, 0, 0);
  return *reinterpret_cast<const uint4*>(matrix + static_cast<size_t>(row) * D + 8 * chunk);
}
__device__ __forceinline__ uint32_t word(const uint4& x, int i) {
  return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}
// A sum in [1, 2) times 2^n has the power 2^n; with LARGEST - power it comes to lie in [1/2, 1), so
// that what belongs to it fits a half, without a division.
constexpr uint32_t LARGEST = 253u << 23, TWICE = 1u << 23;
__device__ __forceinline__ uint32_t exponent(float sum) { return __float_as_uint(sum) & 0x7f800000u; }

// The halves number `which` of two words: a PRMT.
__device__ __forceinline__ uint32_t pair_of(uint32_t low, uint32_t high, int which) {
  return which ? low >> 16 | (high & 0xffff0000u) : (low & 0xffffu) | high << 16;
}

template <class P>
__global__ void __launch_bounds__(THREADS, 1) straight(Attention a) {
  constexpr int D = P::D, KEYS = P::KEYS, STRIPS = P::STRIPS;
  constexpr int QUARTERS = D / 32;  // chunks of a row of Q or K that a lane has
  constexpr int EIGHTHS = D / 64;   // of V
  auto& m = shared_memory<typename P::Shared>();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int head = blockIdx.y, first = blockIdx.x * P::ROWS, keys = a.keys(first + P::ROWS);
  const half *q = head_of<D>(a.q, a, head), *k = head_of<D>(a.k, a, head), *v = head_of<D>(a.v, a, head);

  uint4 mine[STRIPS][2][QUARTERS];  // of Q: rows g and g+8
#pragma unroll
  for (int i = 0; i < STRIPS; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int h = 0; h < QUARTERS; ++h)
        mine[i][r][h] = chunk_of<D>(q, first + 16 * i + g + 8 * r, a.length, t + 4 * h);
  const flash::Folded folded(a.scale);

  float out[STRIPS][D / 8][4], max[STRIPS][2], sum[STRIPS][2];
#pragma unroll
  for (int i = 0; i < STRIPS; ++i) {
    max[i][0] = max[i][1] = -INFINITY, sum[i][0] = sum[i][1] = 0.0f;
#pragma unroll
    for (int d = 0; d < D / 8; ++d)
#pragma unroll
      for (int j = 0; j < 4; ++j) out[i][d][j] = 0.0f;
  }

  for (int key = warp * KEYS; key < keys; key += WARPS * KEYS) {
    uint4 kx[KEYS / 8][QUARTERS], vx[KEYS / 16][4][EIGHTHS];
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n)
#pragma unroll
      for (int h = 0; h < QUARTERS; ++h)
        kx[n][h] = chunk_of<D>(k, key + 8 * n + g, a.length, t + 4 * h);
#pragma unroll
    for (int n = 0; n < KEYS / 16; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int h = 0; h < EIGHTHS; ++h)
          vx[n][j][h] = chunk_of<D>(v, key + 16 * n + 2 * t + j % 2 + j / 2 * 8, a.length, g + 8 * h);

#pragma unroll
    for (int i = 0; i < STRIPS; ++i) {
      float s[KEYS / 8][4], correction[2];
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n) {
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll
        for (int h = 0; h < QUARTERS; ++h)
#pragma unroll
          for (int e = 0; e < 4; e += 2) {
            const uint32_t rows[4] = {
                word(mine[i][0][h], e) ^ folded.sign, word(mine[i][1][h], e) ^ folded.sign,
                word(mine[i][0][h], e + 1) ^ folded.sign, word(mine[i][1][h], e + 1) ^ folded.sign};
            mma(s[n], rows, word(kx[n][h], e), word(kx[n][h], e + 1));
          }
      }
      if (flash::at_edge<KEYS>(a, first + 16 * i, key))
        flash::mask<KEYS>(a, s, first + 16 * i, key, lane);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float top = fmaxf(s[0][2 * r], s[0][2 * r + 1]);
#pragma unroll
        for (int n = 1; n < KEYS / 8; ++n) top = fmaxf(top, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
        top = fmaxf(flash::quad_max(top) * folded.factor, max[i][r]);
        correction[r] = max[i][r] == -INFINITY ? 0.0f : exp2_approx(max[i][r] - top);
        max[i][r] = top;
        sum[i][r] *= correction[r];
        const float offset = top == -INFINITY ? 0.0f : -top;  // exp2(-inf + 0) = 0, not NaN
#pragma unroll
        for (int n = 0; n < KEYS / 8; ++n)
#pragma unroll
          for (int j = 2 * r; j < 2 * r + 2; ++j)
            sum[i][r] += s[n][j] = exp2_approx(fmaf(s[n][j], folded.factor, offset));
      }
      if (P::LOOP) {
#pragma unroll
        for (int d = 0; d < D / 8; ++d)
#pragma unroll
          for (int j = 0; j < 4; ++j) out[i][d][j] *= correction[j / 2];
      }
#pragma unroll
      for (int n = 0; n < KEYS / 16; ++n) {
        const uint32_t p[4] = {pack(s[2 * n][0], s[2 * n][1]), pack(s[2 * n][2], s[2 * n][3]),
                               pack(s[2 * n + 1][0], s[2 * n + 1][1]),
                               pack(s[2 * n + 1][2], s[2 * n + 1][3])};
#pragma unroll
        for (int h = 0; h < EIGHTHS; ++h)
#pragma unroll
          for (int e = 0; e < 8; ++e) {  // column 8 (g + 8 h) + e: a pair of keys a register
            uint32_t b[2];
#pragma unroll
            for (int j = 0; j < 2; ++j)
              b[j] = pair_of(word(vx[n][2 * j][h], e / 2), word(vx[n][2 * j + 1][h], e / 2), e % 2);
            mma(out[i][8 * h + e], p, b[0], b[1]);
          }
      }
    }
    if (!P::LOOP) break;
  }

#pragma unroll
  for (int i = 0; i < STRIPS; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = 16 * i + g + 8 * r;
      const float all = flash::quad_sum(sum[i][r]), scale = __uint_as_float(LARGEST - exponent(all));
#pragma unroll
      for (int h = 0; h < EIGHTHS; ++h)
#pragma unroll
        for (int b = 0; b < 2; ++b) {  // chunk 2 t + b of those with this h
          uint32_t w[4];
#pragma unroll
          for (int e = 0; e < 4; ++e)
            w[e] = pack(out[i][8 * h + 2 * e][2 * r + b] * scale,
                        out[i][8 * h + 2 * e + 1][2 * r + b] * scale);
          m.part[warp][row][(8 * h + 2 * t + b) ^ (row & 1)] = make_uint4(w[0], w[1], w[2], w[3]);
        }
      if (t == 0)
        reinterpret_cast<float2*>(m.stats[row])[warp] = make_float2(max[i][r], all);
    }
  __syncthreads();

  const int row = threadIdx.x / P::CHUNKS, chunk = threadIdx.x % P::CHUNKS;
  static_assert(P::ROWS * P::CHUNKS == THREADS, "a thread has one chunk of the output");
  if (first + row >= a.length) return;
  float weight[WARPS], total[8] = {}, top = -INFINITY, all = 0.0f;
#pragma unroll
  for (int w = 0; w < WARPS; w += 2) {
    const float4 two = m.stats[row][w / 2];
    top = fmaxf(top, fmaxf(two.x, two.z));
  }
#pragma unroll
  for (int w = 0; w < WARPS; w += 2) {
    const float4 two = m.stats[row][w / 2];
    weight[w] = exp2_approx(two.x - top), weight[w + 1] = exp2_approx(two.z - top);
    all += weight[w] * two.y, all += weight[w + 1] * two.w;
    weight[w] *= __uint_as_float(exponent(two.y) + TWICE);
    weight[w + 1] *= __uint_as_float(exponent(two.w) + TWICE);
  }
  const float scale = 1.0f / all;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) {
    const uint4 x = m.part[w][row][chunk ^ (row & 1)];
    weight[w] *= scale;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const uint32_t both = word(x, e);
      const float2 pair = __half22float2(*reinterpret_cast<const half2*>(&both));
      total[2 * e] += weight[w] * pair.x;
      total[2 * e + 1] += weight[w] * pair.y;
    }
  }
  const uint4 packed = make_uint4(pack(total[0], total[1]), pack(total[2], total[3]),
                                  pack(total[4], total[5]), pack(total[6], total[7]));
  auto* o = reinterpret_cast<uint4*>(head_of<D>(a.o, a, head));
  o[static_cast<size_t>(first + row) * P::CHUNKS + chunk] = packed;  // counted so, it is one store
}

template <class P>
int start(const Attention& a, cudaStream_t stream) {
  return launch<straight<P>>(
      {dim3(ceil_div(a.length, P::ROWS), a.heads), THREADS, sizeof(typename P::Shared)}, stream, a);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value, FEW = 2048 / D;  // keys that leave registers for a loop
    if (a.length <= WARPS * FEW) return start<Plan<D, FEW, false>>(a, args->stream);
    if (a.length <= 2 * WARPS * FEW) return start<Plan<D, 2 * FEW, false>>(a, args->stream);
    return start<Plan<D, FEW, true>>(a, args->stream);
  });
}
