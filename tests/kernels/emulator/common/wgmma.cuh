// Emulated: kernels/common/wgmma.cuh. A product runs when it is waited for (or at once if copies are
// early); operands are read from shared memory then, accumulators written then.
#pragma once
#include "emulator.h"
#include "sm90.cuh"

struct Operand {
  const unsigned char* start;
  unsigned slab_bytes;
  Operand(const void* p, unsigned slab)
      : start(static_cast<const unsigned char*>(p)), slab_bytes(slab) {
    if (!emu::aligned(p, 1024)) emu::fail("a swizzled operand wants 1 KiB alignment");
  }
  Operand plus(unsigned bytes) const {
    Operand next = *this;
    next.start += bytes;
    return next;
  }
  // The bytes at `byte` of 128-byte row `row` (rows of 8 in groups of 1 KiB), swizzled by address.
  template <class Word>
  Word at(int row, int byte, int slab = 0) const {
    uintptr_t p = reinterpret_cast<uintptr_t>(start) + slab * slab_bytes + row / 8 * 1024 +
                  row % 8 * 128 + byte;
    p ^= (p >> 7 & 7) << 4;
    return *reinterpret_cast<const Word*>(p);
  }
};

inline void wgmma_fence() {}
inline void wgmma_commit() { emu::commit_works(); }
template <int PENDING>
inline void wgmma_wait() {
  emu::do_works(PENDING);
}
template <int PENDING>
inline void wgmma_wait_after(float) {
  emu::do_works(PENDING);
}
template <int TILES>
void hold(float (&)[TILES][4]) {}
inline void named_barrier(int id, int threads) { emu::block_barrier(id, threads); }
inline void named_barrier_arrive(int id, int threads) { emu::block_arrive(id, threads); }
template <int COUNT>
void give_up_registers() {}
template <int COUNT>
void take_registers() {}

namespace emu {
struct Rows {  // two rows of the left operand, or two columns of the right one, as halves
  uint64_t x[2][4];
};
struct Left {
  float x[2][16];
};
// Rows or columns that lie in a row of shared memory each.
inline Rows rows_at(Operand o, int first, int second) {
  Rows r;
  for (int i = 0; i < 4; ++i)
    r.x[0][i] = o.at<Eight>(first, 8 * i), r.x[1][i] = o.at<Eight>(second, 8 * i);
  return r;
}
UNWATCHED inline void put(Rows& r, int i, int k, uint64_t half) {
  if (k % 4 == 0) r.x[i][k / 4] = 0;
  r.x[i][k / 4] |= (half & 0xffff) << k % 4 * 16;
}
// Columns `col` and the next, whose sixteen values lie in a row of shared memory each.
inline Rows columns_at(Operand o, int col) {
  Rows r;
  for (int k = 0; k < 16; ++k) {
    uint64_t two = o.at<Four>(k, col % 64 * 2, col / 64);
    put(r, 0, k, two), put(r, 1, k, two >> 16);
  }
  return r;
}
UNWATCHED inline Left floats(const Rows& r) {
  Left left;
  for (int i = 0; i < 2; ++i)
    for (int k = 0; k < 16; ++k) left.x[i][k] = to_float(r.x[i][k / 4] >> k % 4 * 16);
  return left;
}
UNWATCHED inline Sums dot(Sums sums, const Left& a, const Rows& columns) {
  return dot(sums, a.x, floats(columns).x);
}
template <int TILES>
void multiply(float (*d)[4], const Left& a, Operand b, bool b_rows_are_k, bool add) {
  int t = self().lane % 4;
  for (int n = 0; n < TILES; ++n) {
    int col = 8 * n + 2 * t;
    Rows right = b_rows_are_k ? columns_at(b, col) : rows_at(b, col, col + 1);
    Sums sums = {};
    if (add) sums = {{d[n][0], d[n][1], d[n][2], d[n][3]}};
    sums = dot(sums, a, right);
    for (int i = 0; i < 4; ++i) d[n][i] = sums.x[i];
  }
}
template <class F>
void later(F f) {
  F* work = new F(f);
  submit_work([](void* p) { (*static_cast<F*>(p))(); delete static_cast<F*>(p); }, work);
}
}  // namespace emu

template <int TILES>
void wgmma(float (&d)[TILES][4], Operand a, Operand b, int add) {
  float(*to)[4] = d;
  int row = emu::self().warp % 4 * 16 + emu::self().lane / 4;
  emu::later([=] {
    emu::multiply<TILES>(to, emu::floats(emu::rows_at(a, row, row + 8)), b, false, add);
  });
}
namespace emu {
// The left operand from registers: sixteen rows a warp.
struct Registers {
  uint32_t x[4];
};
UNWATCHED inline Left left_of(Registers mine) {
  Exchange all(mine);
  Left left;
  for (int owner = 0; owner < 4; ++owner) {
    const auto theirs = all.of<Registers>(self().lane / 4 * 4 + owner);
    for (int i = 0; i < 4; ++i)
      for (int part = 0; part < 2; ++part)
        left.x[i % 2][i / 2 * 8 + 2 * owner + part] = half_at(theirs.x[i], part);
  }
  return left;
}
template <int TILES>
void multiply_registers(float (&d)[TILES][4], const uint32_t (&a)[4], Operand b, bool b_rows_are_k,
                        int add) {
  const Left left = left_of({{a[0], a[1], a[2], a[3]}});
  float(*to)[4] = d;
  later([=] { multiply<TILES>(to, left, b, b_rows_are_k, add); });
}
}  // namespace emu

template <int TILES>
void wgmma(float (&d)[TILES][4], const uint32_t (&a)[4], Operand b, int add) {
  emu::multiply_registers(d, a, b, true, add);
}
template <int TILES>
void wgmma_keys(float (&d)[TILES][4], const uint32_t (&a)[4], Operand b, int add) {
  emu::multiply_registers(d, a, b, false, add);
}
