/* What every variant is given besides attention's arguments: which blocks of keys a row of blocks sees. */
#pragma once
#include "../common/attention.cuh"

constexpr int BLOCK = 128;  // queries, and keys

struct SparseAttention : Attention {
  const int* lists;  // a row of blocks: which row comes here if the longest go first, count, blocks
  int columns;

  __device__ __forceinline__ const int* list(int row) const {
    return lists + static_cast<size_t>(row) * (2 + columns) + 2;
  }
  __device__ __forceinline__ int count(int row) const { return list(row)[-1]; }
  __device__ __forceinline__ int longest(int rank) const { return list(rank)[-2]; }
};

// Calls f(sparse attention, std::integral_constant<int, D>) for D = 64 and 128.
template <class F>
inline int on_sparse(const ProfkitArgs* args, F f) {
  return on_head_dim<64, 128>(args, [&](const Attention& a, auto d) -> int {
    if (args->size[4] != ceil_div(a.length, BLOCK) || a.causal) return cudaErrorInvalidValue;
    SparseAttention sparse;
    static_cast<Attention&>(sparse) = a;
    sparse.lists = static_cast<const int*>(args->in[3]);
    sparse.columns = static_cast<int>(args->size[4]);
    return f(sparse, d);
  });
}
