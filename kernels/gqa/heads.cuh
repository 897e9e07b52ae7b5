/* Eight query heads read one key head: which head of q, and which of k and v.

   The kernels are those of the problem attention, a file included by each rung here. They find a head
   by head_of(tensor, …); here that is the group's for k and v. q has eight times as many heads, so it is
   never the same tensor.
*/
#pragma once
#include "../common/attention.cuh"

constexpr int GROUP = 8;  // query heads a key head

template <int D, class T>
__device__ __forceinline__ T* own_or_group_head(T* x, const Attention& a, int head) {
  return head_of<D>(x, a, x == a.k || x == a.v ? head / GROUP : head);
}

// Whether args are of this group size: sizes are B, H, S, D and K.
inline bool of_group(const ProfkitArgs* args) {
  return args->size[4] > 0 && args->size[1] == GROUP * args->size[4];
}
