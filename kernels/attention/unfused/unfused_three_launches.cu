/* Three launches, scores and probabilities in global memory.

   What fusing saves. Scores are written as fp32 and read twice (maximum, then sum and result),
   probabilities are written and read as halves: 12 B H S² bytes at least that no fused kernel moves,
   3.2 GB at C against 67 MB of inputs and output. At C the softmax and P V are DRAM-bound for real
   (dram near its peak, long_scoreboard); at A and B all of it stays in L2 and three launches, each too
   small for the machine, are what costs.

   arch: 80+      budget: regs=255 smem=100K spills=0 stack=0
*/
#include "../../common/flash.cuh"
#include "../../common/pool.cuh"

constexpr int M = 64, N = 64, STAGES = 2, THREADS = 128;

struct Scratch {
  float* s;   // (heads, length, pitch): scale q k^T
  half* p;    // (heads, length, pitch): softmax, 0 where a row sees no key
  int pitch;  // columns: length rounded up to whole tiles
};

template <int D>
struct ScoresShared {
  Tile<half, M, D, Swizzled> q;
  Tile<half, N, D, Swizzled> k;
};

template <int D>
__global__ void __launch_bounds__(THREADS, 1) unfused_scores(Attention a, Scratch x) {
  auto& m = shared_memory<ScoresShared<D>>();
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int key = blockIdx.x * N, first = blockIdx.y * M, head = blockIdx.z;
  if (key >= a.keys(first + M)) return;  // nothing here is seen

  copy_rows<THREADS>(m.q, head_of<D>(a.q, a, head), first, a.length, threadIdx.x);
  copy_rows<THREADS>(m.k, head_of<D>(a.k, a, head), key, a.length, threadIdx.x);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();

  flash::Rows<D> rows;
  rows.load(m.q, 16 * warp, lane);
  float s[N / 8][4];
  flash::scores<N, D>(s, rows.q, m.k, 0, lane);
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    int row = first + 16 * warp + acc_row(lane, i);
    if (row >= a.length) continue;
    float* to = x.s + (static_cast<size_t>(head) * a.length + row) * x.pitch + key;
#pragma unroll
    for (int n = 0; n < N / 8; ++n)
      *reinterpret_cast<float2*>(to + 8 * n + acc_col(lane, i)) =
          make_float2(s[n][i] * a.scale, s[n][i + 1] * a.scale);
  }
}

// A warp a row.
__global__ void __launch_bounds__(THREADS) unfused_softmax(Attention a, Scratch x) {
  int lane = threadIdx.x % 32, row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  if (row >= a.length) return;
  size_t start = (static_cast<size_t>(blockIdx.y) * a.length + row) * x.pitch;
  const float* s = x.s + start;
  int keys = a.keys(row + 1), end = ceil_div(a.keys((row / M + 1) * M), N) * N;  // what P V reads

  float max = -INFINITY, sum = 0.0f;
  for (int key = lane; key < keys; key += 32) max = fmaxf(max, s[key]);
  max = warp_max(max);
  for (int key = lane; key < keys; key += 32) sum += exp_approx(s[key] - max);
  float scale = 1.0f / warp_sum(sum);
  for (int key = 2 * lane; key < end; key += 64) {
    float2 y = *reinterpret_cast<const float2*>(s + key);
    *reinterpret_cast<half2*>(x.p + start + key) =
        __floats2half2_rn(key < keys ? exp_approx(y.x - max) * scale : 0.0f,
                          key + 1 < keys ? exp_approx(y.y - max) * scale : 0.0f);
  }
}

template <int D>
struct PvShared {
  Tile<half, M, N, Swizzled> p[STAGES];
  Tile<half, N, D, Swizzled> v[STAGES];
};

template <int D>
__global__ void __launch_bounds__(THREADS, 1) unfused_pv(Attention a, Scratch x) {
  auto& m = shared_memory<PvShared<D>>();
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * M, head = blockIdx.y;
  const half* v = head_of<D>(a.v, a, head);
  const half* p = x.p + static_cast<size_t>(head) * a.length * x.pitch;
  int tiles = ceil_div(a.keys(first + M), N);
  auto fetch = [&](int tile) {
    if (tile < tiles) {
      copy_rows<THREADS>(m.p[tile % STAGES], p + tile * N, first, a.length, threadIdx.x, x.pitch);
      copy_rows<THREADS>(m.v[tile % STAGES], v, tile * N, a.length, threadIdx.x);
    }
    cp_async_commit();  // an empty group past the last tile
  };

  for (int tile = 0; tile < STAGES - 1; ++tile) fetch(tile);
  flash::Rows<D> rows;
  rows.clear();
  for (int tile = 0; tile < tiles; ++tile) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // this tile is here, and the one before is used up
    fetch(tile + STAGES - 1);
#pragma unroll
    for (int key = 0; key < N; key += 16) {
      uint32_t left[4], b[4];
      load_a(left, m.p[tile % STAGES], 16 * warp, key, lane);
#pragma unroll
      for (int d = 0; d < D / 8; d += 2) {
        load_b_trans(b, m.v[tile % STAGES], key, 8 * d, lane);
        mma(rows.out[d], left, b[0], b[1]);
        mma(rows.out[d + 1], left, b[2], b[3]);
      }
    }
  }
  rows.sum[0] = rows.sum[1] = 1.0f;  // rows of P add up to 1
  rows.store(head_of<D>(a.o, a, head), first + 16 * warp, a.length, lane);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) {
    constexpr int D = decltype(d)::value;
    int blocks = ceil_div(a.length, M), pitch = blocks * N;
    size_t elements = static_cast<size_t>(a.heads) * a.length * pitch;
    Workspace space(elements * (sizeof(float) + sizeof(half)), args->stream);
    if (space.error) return int{space.error};
    float* s = static_cast<float*>(space.data);
    Scratch x = {s, reinterpret_cast<half*>(s + elements), pitch};
    if (int e = launch<unfused_scores<D>>(
            {dim3(blocks, blocks, a.heads), THREADS, sizeof(ScoresShared<D>)}, args->stream, a, x))
      return e;
    if (int e = launch<unfused_softmax>(
            {dim3(ceil_div(a.length, THREADS / 32), a.heads), THREADS, 0}, args->stream, a, x))
      return e;
    return int{launch<unfused_pv<D>>({dim3(blocks, a.heads), THREADS, sizeof(PvShared<D>)},
                                     args->stream, a, x)};
  });
}
