// Emulated: CUDA's mma.h (WMMA), fp16 16x16x16. Which lane holds which element is not documented, so
// it is scrambled here: code that counts on an order gives wrong values.
#pragma once
#include <cuda_fp16.h>

#include "emulator.h"

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static_assert(M == 16 && N == 16 && K == 16, "");
  static constexpr int num_elements = 8;
  T x[8];
};
inline int place(int lane, int i) { return (lane * 8 + i) * 37 % 256; }  // element of the 16x16

template <class F, class T>
void fill_fragment(F& f, T value) {
  for (auto& x : f.x) x = value;
}
inline void require(const void* p, unsigned ldm, size_t size) {
  if (!emu::aligned(p, 32)) emu::fail("WMMA wants 32-byte alignment");
  if (ldm * size % 16) emu::fail("WMMA wants rows of a multiple of 16 bytes");
}
template <class Use, class T, class L>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, L>& f, const T* p, unsigned ldm) {
  require(p, ldm, sizeof(T));
  for (int i = 0; i < 8; ++i) {
    int e = place(emu::self().lane, i), row = e / 16, col = e % 16;
    f.x[i] = std::is_same_v<L, row_major> ? p[row * ldm + col] : p[col * ldm + row];
  }
}
template <class T>
void load_matrix_sync(fragment<accumulator, 16, 16, 16, T>& f, const T* p, unsigned ldm, layout_t) {
  require(p, ldm, sizeof(T));
  for (int i = 0; i < 8; ++i) {
    int e = place(emu::self().lane, i);
    f.x[i] = p[e / 16 * ldm + e % 16];
  }
}
template <class T>
void store_matrix_sync(T* p, const fragment<accumulator, 16, 16, 16, T>& f, unsigned ldm, layout_t) {
  require(p, ldm, sizeof(T));
  for (int i = 0; i < 8; ++i) {
    int e = place(emu::self().lane, i);
    p[e / 16 * ldm + e % 16] = f.x[i];
  }
}
struct Elements {
  float x[8];
};
struct Tile {
  float x[256];
};
template <class F>
Elements elements(const F& f) {
  Elements mine;
  for (int i = 0; i < 8; ++i) mine.x[i] = static_cast<float>(f.x[i]);
  return mine;
}
UNWATCHED inline Tile gather(Elements mine) {
  emu::Exchange all(mine);
  Tile out;
  for (int lane = 0; lane < 32; ++lane) {
    const auto theirs = all.of<Elements>(lane);
    for (int i = 0; i < 8; ++i) out.x[place(lane, i)] = theirs.x[i];
  }
  return out;
}
UNWATCHED inline Elements product(Elements sums, Elements a, Elements b) {
  const Tile left = gather(a), right = gather(b);
  for (int i = 0; i < 8; ++i) {
    int e = place(emu::self().lane, i);
    for (int k = 0; k < 16; ++k) sums.x[i] += left.x[e / 16 * 16 + k] * right.x[k * 16 + e % 16];
  }
  return sums;
}
template <class C, class A, class B>
void mma_sync(C& d, const A& a, const B& b, const C& c) {
  const Elements sums = product(elements(c), elements(a), elements(b));
  for (int i = 0; i < 8; ++i) d.x[i] = sums.x[i];
}

}  // namespace nvcuda::wmma
