/* Eight elements as one access of 16 bytes.

   Eight is copied member by member, and each of its four pairs is then a load of its own, 16-byte aligned
   or not. A uint4 is one instruction; what it holds goes on as an Eight, in registers.
*/
#pragma once
#include "norm.cuh"

template <class T>
__device__ __forceinline__ Eight<T> load_eight(const T* p, size_t i) {
  Eight<T> eight;
  *reinterpret_cast<uint4*>(&eight) = reinterpret_cast<const uint4*>(p)[i];
  return eight;
}
template <class T>
__device__ __forceinline__ void store_eight(T* p, size_t i, const Eight<T>& eight) {
  reinterpret_cast<uint4*>(p)[i] = *reinterpret_cast<const uint4*>(&eight);
}
