/* Every block of keys is multiplied, and what is not seen is masked.

   What a mask costs that is only a mask: all of S x S is fetched, multiplied and exponentiated, and most
   of it thrown away. The time does not know how sparse the mask is.

   arch: 80+      budget: regs=255 smem=80K spills=0 stack=0
*/
#include "strips.cuh"

struct AllTiles {
  int count;
  const int *at, *end;  // of the row's list: tiles are asked for in rising order
  __device__ __forceinline__ AllTiles(const SparseAttention& a, int row)
      : count(ceil_div(a.length, strips::N)), at(a.list(row)), end(at + a.count(row)) {}
  __device__ __forceinline__ int key(int tile) const { return tile * strips::N; }
  __device__ __forceinline__ bool seen(int key) {
    while (at != end && *at < key / BLOCK) ++at;
    return at != end && *at == key / BLOCK;
  }
};

template <int D>
__global__ void __launch_bounds__(strips::THREADS, 1) dense_mask(SparseAttention a) {
  strips::attend<D, AllTiles>(a);
}

extern "C" int profkit_launch(const ProfkitArgs* args) {
  return on_sparse(args, [&](const SparseAttention& a, auto d) {
    constexpr int D = decltype(d)::value;
    return int{launch<dense_mask<D>>({dim3(ceil_div(a.length, strips::M), a.heads), strips::THREADS,
                                      sizeof(strips::Shared<D>)},
                                     args->stream, a)};
  });
}
