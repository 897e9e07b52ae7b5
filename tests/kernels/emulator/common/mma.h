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
template <class F>
void gather(const F& f, float (&out)[256]) {
  struct Elements {
    float x[8];
  } mine;
  for (int i = 0; i < 8; ++i) mine.x[i] = static_cast<float>(f.x[i]);
  emu::Exchange all(mine);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 8; ++i) out[place(lane, i)] = all.of<Elements>(lane).x[i];
}
template <class C, class A, class B>
void mma_sync(C& d, const A& a, const B& b, const C& c) {
  float left[256], right[256];
  gather(a, left);
  gather(b, right);
  for (int i = 0; i < 8; ++i) {
    int e = place(emu::self().lane, i);
    float sum = c.x[i];
    for (int k = 0; k < 16; ++k) sum += left[e / 16 * 16 + k] * right[k * 16 + e % 16];
    d.x[i] = sum;
  }
}

}  // namespace nvcuda::wmma
