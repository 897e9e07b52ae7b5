// Emulated: kernels/common/e4m3.cuh.
#pragma once
#include <cuda_fp8.h>

#include "wgmma.cuh"

inline uint32_t pack_e4m3(float a, float b, float c, float d) {
  uint32_t codes = 0, i = 0;
  for (float x : {a, b, c, d})
    codes |= uint32_t{__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3)} << 8 * i++;
  return codes;
}
template <unsigned SELECT>
inline uint32_t bytes_of(uint32_t low, uint32_t high) {
  uint64_t both = uint64_t{high} << 32 | low;
  uint32_t bytes = 0;
  for (int i = 0; i < 4; ++i) bytes |= (both >> 8 * (SELECT >> 4 * i & 7) & 0xff) << 8 * i;
  return bytes;
}

namespace emu {
struct Place {
  void* row;
  uint32_t r[4];
};
}  // namespace emu
// Matrix i has its row g at the address of lane 8 i + g; lane 4 g + t holds bytes 4 t … of it.
inline void stmatrix(void* row, const uint32_t (&r)[4]) {
  if (!emu::aligned(row, 16)) emu::fail("stmatrix is misaligned");
  emu::Exchange all(row);
  int g = emu::self().lane / 4, t = emu::self().lane % 4;
  for (int i = 0; i < 4; ++i)
    static_cast<emu::Four*>(all.of<void*>(8 * i + g))[t] = r[i];
}

namespace emu {
struct Codes {
  float x[2][32];
};
UNWATCHED inline Codes decoded(const Rows& r) {
  Codes codes;
  for (int i = 0; i < 2; ++i)
    for (int k = 0; k < 32; ++k)
      codes.x[i][k] = e4m3_at(static_cast<uint32_t>(r.x[i][k / 8] >> k % 8 / 4 * 32), k % 4);
  return codes;
}
UNWATCHED inline Sums dot_codes(Sums sums, const Codes& a, const Rows& columns) {
  return dot(sums, a.x, decoded(columns).x);
}
template <int TILES>
void multiply_codes(float (*d)[4], const Codes& a, Operand b, bool add) {
  for (int n = 0; n < TILES; ++n) {
    int col = 8 * n + 2 * (self().lane % 4);
    Sums sums = {};
    if (add) sums = {{d[n][0], d[n][1], d[n][2], d[n][3]}};
    sums = dot_codes(sums, a, rows_at(b, col, col + 1));
    for (int i = 0; i < 4; ++i) d[n][i] = sums.x[i];
  }
}
UNWATCHED inline Codes left_codes(Registers mine) {
  Exchange all(mine);
  Codes left;
  for (int owner = 0; owner < 4; ++owner) {
    const auto theirs = all.of<Registers>(self().lane / 4 * 4 + owner);
    for (int i = 0; i < 4; ++i)
      for (int byte = 0; byte < 4; ++byte)
        left.x[i % 2][i / 2 * 16 + 4 * owner + byte] = e4m3_at(theirs.x[i], byte);
  }
  return left;
}
}  // namespace emu

template <int TILES>
void wgmma_e4m3(float (&d)[TILES][4], Operand a, Operand b, int add) {
  float(*to)[4] = d;
  int row = emu::self().warp % 4 * 16 + emu::self().lane / 4;
  emu::later([=] {
    emu::multiply_codes<TILES>(to, emu::decoded(emu::rows_at(a, row, row + 8)), b, add);
  });
}
template <int TILES>
void wgmma_e4m3(float (&d)[TILES][4], const uint32_t (&a)[4], Operand b, int add) {
  const emu::Codes left = emu::left_codes({{a[0], a[1], a[2], a[3]}});
  float(*to)[4] = d;
  emu::later([=] { emu::multiply_codes<TILES>(to, left, b, add); });
}
