/* What every variant is given: one query a sequence and head, and the pages of its keys and values.

   The heads of a group share a key head. table: for each sequence its length, then its pages.
*/
#pragma once
#include <cmath>

#include "../common/attention.cuh"

struct Decode {
  const half* q;     // (batch, heads, D)
  const half *k, *v;  // (pages, key_heads, page, D), 16-byte aligned
  const int* table;  // (batch, 1 + pages of a sequence)
  half* o;           // (batch, heads, D)
  int batch, heads, key_heads, page, pages;  // pages: of a sequence
  float factor;      // scale log2(e): probabilities are powers of two

  __host__ __device__ __forceinline__ int group() const { return heads / key_heads; }
  __device__ __forceinline__ const int* row(int sequence) const {
    return table + static_cast<size_t>(sequence) * (1 + pages);
  }
  __device__ __forceinline__ int length(int sequence) const { return *row(sequence); }
  // Where key `key` of a sequence begins, in keys: to be multiplied by D.
  __device__ __forceinline__ size_t at(int sequence, int key_head, int key) const {
    const int* numbers = row(sequence) + 1;
    int number = pages == 1 ? numbers[0] : numbers[key / page];
    return (static_cast<size_t>(number) * key_heads + key_head) * page +
           (pages == 1 ? key : key % page);
  }
};

// Checks args and calls f(decode, std::integral_constant<int, D>) for D = 64 and 128.
template <class F>
inline int on_cache(const ProfkitArgs* args, F f) {
  const long long* n = args->size;
  for (int i = 0; i < 6; ++i)
    if (n[i] < 0 || n[i] > (1 << 24)) return cudaErrorInvalidValue;
  if (n[0] * n[1] == 0) return cudaSuccess;
  if (n[2] == 0 || n[1] % n[2] || n[5] == 0 || n[3] % n[5]) return cudaErrorInvalidValue;
  if (n[0] > 65535 || n[1] > 65535) return cudaErrorNotSupported;
  uintptr_t addresses = 0;
  for (int i = 0; i < 3; ++i) addresses |= reinterpret_cast<uintptr_t>(args->in[i]);
  if (addresses % 16) return cudaErrorInvalidValue;
  auto in = [&](int i) { return static_cast<const half*>(args->in[i]); };
  auto size = [&](int i) { return static_cast<int>(n[i]); };
  Decode c = {in(0), in(1), in(2), static_cast<const int*>(args->in[3]),
             static_cast<half*>(args->out[0]), size(0), size(1), size(2), size(5), size(3) / size(5),
             args->scale * LOG2E};
  if (n[4] == 64) return f(c, std::integral_constant<int, 64>{});
  if (n[4] == 128) return f(c, std::integral_constant<int, 128>{});
  return cudaErrorNotSupported;
}
