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
  // The half at `byte` of 128-byte row `row` (rows of 8 in groups of 1 KiB), swizzled by address.
  float at(int row, int byte, int slab = 0) const {
    uintptr_t p = reinterpret_cast<uintptr_t>(start) + slab * slab_bytes + row / 8 * 1024 +
                  row % 8 * 128 + byte;
    p ^= (p >> 7 & 7) << 4;
    return __half2float(*reinterpret_cast<const half*>(p));
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
template <int TILES>
void multiply(float (*d)[4], const float (&a)[2][16], Operand b, bool b_rows_are_k, bool add) {
  int t = self().lane % 4;
  for (int n = 0; n < TILES; ++n)
    for (int i = 0; i < 4; ++i) {
      int col = 8 * n + 2 * t + i % 2;
      float sum = add ? d[n][i] : 0.0f;
      for (int k = 0; k < 16; ++k)
        sum += a[i / 2][k] * (b_rows_are_k ? b.at(k, col % 64 * 2, col / 64) : b.at(col, 2 * k));
      d[n][i] = sum;
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
    float left[2][16];
    for (int i = 0; i < 2; ++i)
      for (int k = 0; k < 16; ++k) left[i][k] = a.at(row + 8 * i, 2 * k);
    emu::multiply<TILES>(to, left, b, false, add);
  });
}
namespace emu {
// The left operand from registers: sixteen rows a warp.
template <int TILES>
void multiply_registers(float (&d)[TILES][4], const uint32_t (&a)[4], Operand b, bool b_rows_are_k,
                        int add) {
  struct Registers {
    uint32_t x[4];
  } mine = {{a[0], a[1], a[2], a[3]}};
  Exchange all(mine);
  struct Left {
    float x[2][16];
  } left;
  for (int i = 0; i < 2; ++i)
    for (int k = 0; k < 16; ++k)
      left.x[i][k] =
          half_at(all.of<Registers>(self().lane / 4 * 4 + k % 8 / 2).x[i + k / 8 * 2], k % 2);
  float(*to)[4] = d;
  later([=] { multiply<TILES>(to, left.x, b, b_rows_are_k, add); });
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
