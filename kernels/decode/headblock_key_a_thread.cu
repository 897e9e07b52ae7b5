/* A block a query head, a key a thread.

   Each thread multiplies the query by a key of its own, element after element: the threads of a warp
   read 32 rows at once, two bytes of each, and the same sectors again at the next element. Then a
   thread an element of the output goes through the values of these keys. Every query head reads the
   keys and values of its group by itself.

   arch: 80+      budget: regs=80 smem=4K spills=0 stack=0
*/
#include "cache.cuh"

constexpr int THREADS = 128;

template <int D>
struct Shared {
  float q[D], p[THREADS], scratch[THREADS];
};

// max or sum over the block, for all threads.
template <class F>
__device__ __forceinline__ float reduce(float x, float (&scratch)[THREADS], F combine) {
  __syncthreads();
  scratch[threadIdx.x] = x;
  for (int i = THREADS / 2; i > 0; i /= 2) {
    __syncthreads();
    if (threadIdx.x < i) scratch[threadIdx.x] = combine(scratch[threadIdx.x], scratch[threadIdx.x + i]);
  }
  __syncthreads();
  return scratch[0];
}

template <int D>
__global__ void __launch_bounds__(THREADS) head_block(Decode c) {
  auto& m = shared_memory<Shared<D>>();
  const int t = threadIdx.x, head = blockIdx.x, sequence = blockIdx.y;
  const int key_head = head / c.group(), length = c.length(sequence);
  const size_t query = (static_cast<size_t>(sequence) * c.heads + head) * D;
  if (t < D) m.q[t] = __half2float(c.q[query + t]) * c.factor;
  float max = -INFINITY, sum = 0.0f, out = 0.0f;
  for (int first = 0; first < length; first += THREADS) {
    __syncthreads();
    float s = -INFINITY;
    if (first + t < length) {
      const half* k = c.k + c.at(sequence, key_head, first + t) * D;
      s = 0.0f;
      for (int d = 0; d < D; ++d) s += m.q[d] * __half2float(k[d]);
    }
    float higher = reduce(s, m.scratch, [](float a, float b) { return fmaxf(a, b); });
    higher = fmaxf(higher, max);
    float p = exp2_approx(s - higher), correction = exp2_approx(max - higher);
    m.p[t] = p;
    sum = sum * correction + reduce(p, m.scratch, [](float a, float b) { return a + b; });
    out *= correction;
    max = higher;
    const int keys = length - first < THREADS ? length - first : THREADS;
    if (t < D)
      for (int j = 0; j < keys; ++j)
        out += m.p[j] * __half2float(c.v[c.at(sequence, key_head, first + j) * D + t]);
  }
  if (t < D) c.o[query + t] = __float2half(out / sum);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_cache(args, [&](const Decode& c, auto d) {
    constexpr int D = decltype(d)::value;
    return int{launch<head_block<D>>({dim3(c.heads, c.batch), THREADS, sizeof(Shared<D>)},
                                     args->stream, c)};
  });
}
