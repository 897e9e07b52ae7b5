// Emulated: kernels/common/ptx.cuh. Fragment layouts are those of the PTX manual, written here a
// second time on purpose.
#pragma once
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "emulator.h"

inline float exp2_approx(float x) { return std::exp2(x); }

enum class Cache { L1_AND_L2, L2_ONLY };

template <int BYTES, Cache CACHE>
inline void cp_async(void* to, const void* from, bool valid) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
  static_assert(CACHE == Cache::L1_AND_L2 || BYTES == 16, "cp.async.cg copies 16 bytes only");
  if (!emu::aligned(to, BYTES) || !emu::aligned(from, BYTES)) emu::fail("cp.async is misaligned");
  emu::Copy copy = {to, from, BYTES, valid};
  if (emu::early_copies())
    emu::do_copy(copy);
  else
    emu::start_copy(copy);
}
inline void cp_async_commit() { emu::commit_copies(); }
template <int PENDING>
inline void cp_async_wait() {
  for (emu::Copy c; emu::next_due_copy(PENDING, &c);) emu::do_copy(c);
}

namespace emu {
struct Row {
  uint16_t x[8];
};
struct Matrices {
  uint32_t x[4];
};
UNWATCHED inline Matrices matrices_of(Row mine, bool transposed) {
  Exchange all(mine);
  int g = self().lane / 4, t = self().lane % 4;
  Matrices r;
  for (int i = 0; i < 4; ++i) {
    uint32_t two[2];
    for (int j = 0; j < 2; ++j)
      two[j] = transposed ? all.of<Row>(8 * i + 2 * t + j).x[g] : all.of<Row>(8 * i + g).x[2 * t + j];
    r.x[i] = two[0] | two[1] << 16;
  }
  return r;
}
inline void load_matrices(uint32_t (&r)[4], const void* row, bool transposed) {
  if (!aligned(row, 16)) fail("ldmatrix is misaligned");
  Row mine;
  std::memcpy(&mine, row, sizeof mine);
  Matrices read = matrices_of(mine, transposed);
  for (int i = 0; i < 4; ++i) r[i] = read.x[i];
}
UNWATCHED inline float half_at(uint32_t word, int which) { return to_float(word >> 16 * which); }

// What one lane gives to a product of 16x8 and gets of it.
struct Sums {
  float x[4];
};
struct Factors {
  uint32_t x[6];
};
struct Needed {  // the lanes that hold the two rows of the left, and the two columns of the right
  Factors left[4], right[2][4];
};
UNWATCHED inline Needed needed(Factors mine) {
  Exchange all(mine);
  int g = self().lane / 4, t = self().lane % 4;
  Needed n;
  for (int owner = 0; owner < 4; ++owner) {
    n.left[owner] = all.of<Factors>(4 * g + owner);
    for (int i = 0; i < 2; ++i) n.right[i][owner] = all.of<Factors>(4 * (2 * t + i) + owner);
  }
  return n;
}
// Sums of K products: two rows of the left by two columns of the right.
template <int K>
UNWATCHED inline Sums dot(Sums sums, const float (&a)[2][K], const float (&b)[2][K]) {
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < K; ++k) sums.x[i] += a[i / 2][k] * b[i % 2][k];
  return sums;
}
UNWATCHED inline Sums product(Sums c, Factors mine) {
  const Needed n = needed(mine);
  float x[2][16], y[2][16];
  for (int i = 0; i < 2; ++i)
    for (int owner = 0; owner < 4; ++owner)
      for (int part = 0; part < 2; ++part)
        for (int upper = 0; upper < 2; ++upper) {
          const int k = 8 * upper + 2 * owner + part;
          x[i][k] = half_at(n.left[owner].x[i + 2 * upper], part);
          y[i][k] = half_at(n.right[i][owner].x[4 + upper], part);
        }
  return dot(c, x, y);
}
UNWATCHED inline float e4m3_at(uint32_t word, int byte) {
  auto bits = static_cast<__nv_fp8_storage_t>(word >> 8 * byte);
  return to_float(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3).x);
}
UNWATCHED inline Sums product_e4m3(Sums c, Factors mine) {
  const Needed n = needed(mine);
  float x[2][32], y[2][32];
  for (int i = 0; i < 2; ++i)
    for (int k = 0; k < 32; ++k) {
      int owner = k % 16 / 4, upper = k / 16;
      x[i][k] = e4m3_at(n.left[owner].x[i + 2 * upper], k % 4);
      y[i][k] = e4m3_at(n.right[i][owner].x[4 + upper], k % 4);
    }
  return dot(c, x, y);
}
}  // namespace emu

inline void ldmatrix(uint32_t (&r)[4], const void* row) { emu::load_matrices(r, row, false); }
inline void ldmatrix_trans(uint32_t (&r)[4], const void* row) { emu::load_matrices(r, row, true); }

inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emu::Sums sums = emu::product({{c[0], c[1], c[2], c[3]}}, {{a[0], a[1], a[2], a[3], b0, b1}});
  for (int i = 0; i < 4; ++i) c[i] = sums.x[i];
}

inline void mma_e4m3(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emu::Sums sums = emu::product_e4m3({{c[0], c[1], c[2], c[3]}}, {{a[0], a[1], a[2], a[3], b0, b1}});
  for (int i = 0; i < 4; ++i) c[i] = sums.x[i];
}
