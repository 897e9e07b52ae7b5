/* e4m3 for Q, K and V, with a scale per head; encode and decode matched.

   A first launch finds the largest magnitude of each head of Q, K and V and writes codes x / scale,
   scale = magnitude / 448. The second is stage2 on codes: K and V tiles are half the bytes, Q K^T is
   the tensor cores' own e4m3 (QMMA: half the instructions), V is decoded to halves once a tile, and
   what was divided is multiplied back, scores by both scales and the output by V's. L2 to SM bytes of
   the second launch halve; the first reads everything once more, so at A and B nothing is gained.

   The forerunner simulated fp8 with bytes, encoded around 127.5 and decoded around 128: a bias of half
   a code in every value (error 0.013 to 0.017), which was taken for the noise of fp8 and the gates
   were widened. On inputs that are codes already a matched pair loses nothing, so those are what this
   is checked on: the error is then a tenth of that and less, and its mean is 0.

   after: stage2      inputs: e4m3      arch: 89+
   moves: l2_to_l1_bytes<0.55x
   budget: regs=102 smem=66K spills=0 stack=0
*/
#include <cuda_fp8.h>

#include "../../common/cp_async.cuh"
#include "../../common/pool.cuh"
#include "stage.cuh"

using namespace stage;
constexpr int STAGES = 2, ENCODERS = 512;  // threads
using Code = uint8_t;

struct Codes {
  Code* code[3];    // of q, k and v: (heads, length, D)
  float* scale[3];  // (heads): a value is its code times this
};

// One block a head and tensor.
__global__ void __launch_bounds__(ENCODERS) encode(Attention a, Codes x, int head_elements) {
  float* partial = shared_memory<float[ENCODERS / 32]>();
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tensor = blockIdx.x;
  size_t start = static_cast<size_t>(blockIdx.y) * head_elements;
  const half* from = (tensor == 0 ? a.q : tensor == 1 ? a.k : a.v) + start;
  Code* to = (tensor == 0 ? x.code[0] : tensor == 1 ? x.code[1] : x.code[2]) + start;
  float* scales = tensor == 0 ? x.scale[0] : tensor == 1 ? x.scale[1] : x.scale[2];

  float max = 0.0f;
  for (int i = threadIdx.x; i < head_elements / 2; i += ENCODERS) {
    float2 y = __half22float2(reinterpret_cast<const half2*>(from)[i]);
    max = fmaxf(max, fmaxf(fabsf(y.x), fabsf(y.y)));
  }
  max = warp_max(max);
  if (lane == 0) partial[warp] = max;
  __syncthreads();
  max = warp_max(lane < ENCODERS / 32 ? partial[lane] : 0.0f);

  float scale = max > 0.0f ? max / 448.0f : 1.0f;
  for (int i = threadIdx.x; i < head_elements / 2; i += ENCODERS) {
    float2 y = __half22float2(reinterpret_cast<const half2*>(from)[i]);
    y.x /= scale, y.y /= scale;
    reinterpret_cast<__nv_fp8x2_storage_t*>(to)[i] =
        __nv_cvt_float2_to_fp8x2(y, __NV_SATFINITE, __NV_E4M3);
  }
  if (threadIdx.x == 0) scales[blockIdx.y] = scale;
}

template <int D>
struct Shared {
  Tile<Code, M, D> q;
  Tile<Code, N, D> k[STAGES], v[STAGES];
  Tile<half, N, D> decoded;
  Tile<float, M, N> s;
  Tile<half, M, N> p;
  Tile<float, 16, 32> scratch[WARPS];
  Tile<float, M, D> out;
};

// s = q k^T on codes: each warp one 16x16 quarter.
template <class Q, class K, class S>
__device__ __forceinline__ void code_scores(const Q& q, const K& k, S& s, int head_dim) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int row = warp / 2 * 16, col = warp % 2 * 16;
  float acc[2][4] = {};
#pragma unroll
  for (int d = 0; d < head_dim; d += 32) {
    uint32_t left[4], b[4];
    load_a(left, q, row, d, lane);
    load_b(b, k, col, d, lane);
    mma_e4m3(acc[0], left, b[0], b[1]);
    mma_e4m3(acc[1], left, b[2], b[3]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 2; ++j)
      *s.at(row + acc_row(lane, i), col + 8 * j + acc_col(lane, i)) = acc[j][i];
}

// Codes to halves, four at a time.
template <class FROM, class TO>
__device__ __forceinline__ void decode(const FROM& from, TO& to, int head_dim) {
#pragma unroll
  for (int i = 4 * threadIdx.x; i < N * head_dim; i += 4 * THREADS) {
    int row = i / head_dim, col = i % head_dim;
    uint32_t codes = *reinterpret_cast<const uint32_t*>(from.at(row, col));
    __half2 low(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), __NV_E4M3));
    __half2 high(
        __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes >> 16), __NV_E4M3));
    *reinterpret_cast<__half2*>(to.at(row, col)) = low;
    *reinterpret_cast<__half2*>(to.at(row, col + 2)) = high;
  }
}

template <int D>
__global__ void __launch_bounds__(THREADS, 5) stage2fp8(Attention a, Codes x) {
  auto& m = shared_memory<Shared<D>>();
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * M, head = blockIdx.y;
  const Code *k = head_of<D>(x.code[1], a, head), *v = head_of<D>(x.code[2], a, head);
  int tiles = ceil_div(a.keys(first + M), N);
  auto fetch = [&](int tile) {
    if (tile < tiles) {
      copy_rows<THREADS>(m.k[tile % STAGES], k, tile * N, a.length, threadIdx.x);
      copy_rows<THREADS>(m.v[tile % STAGES], v, tile * N, a.length, threadIdx.x);
    }
    cp_async_commit();  // an empty group past the last tile
  };

  Softmax state;
  clear(m.out, D);
  const Code* q = head_of<D>(x.code[0], a, head);
  copy_rows<THREADS>(m.q, q, first, a.length, threadIdx.x);
  for (int tile = 0; tile < STAGES - 1; ++tile) fetch(tile);
  a.scale *= x.scale[0][head] * x.scale[1][head];

  for (int tile = 0; tile < tiles; ++tile) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // this tile is here, and the one before is used up
    fetch(tile + STAGES - 1);
    code_scores(m.q, m.k[tile % STAGES], m.s, D);
    decode(m.v[tile % STAGES], m.decoded, D);
    __syncthreads();

#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      int row = warp + WARPS * i;
      float p =
          softmax_row(a, state, i, m.out, *m.s.at(row, lane), row, first + row, tile * N + lane, D);
      *m.p.at(row, lane) = __float2half(p);
    }
    __syncthreads();
    tensor_pv(m.p, m.decoded, m.scratch[warp], m.out, D);
  }
  __syncthreads();
  for (float& sum : state.sum) sum /= x.scale[2][head];
  store(a, state, m.out, head_of<D>(a.o, a, head), first, D);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    size_t tensor = static_cast<size_t>(a.heads) * a.length * D;
    Workspace space(3 * tensor + 3 * a.heads * sizeof(float), args->stream);
    if (space.error) return int{space.error};
    Code* code = static_cast<Code*>(space.data);
    float* scale = reinterpret_cast<float*>(code + 3 * tensor);
    Codes x = {{code, code + tensor, code + 2 * tensor},
               {scale, scale + a.heads, scale + 2 * a.heads}};
    if (int e = launch<encode>({dim3(3, a.heads), ENCODERS, ENCODERS / 32 * sizeof(float)},
                               args->stream, a, x, a.length * D))
      return e;
    return int{launch<stage2fp8<D>>(
        {dim3(ceil_div(a.length, M), a.heads), THREADS, sizeof(Shared<D>)}, args->stream, a, x)};
  });
}
