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
inline void load_matrices(uint32_t (&r)[4], const void* row, bool transposed) {
  if (!aligned(row, 16)) fail("ldmatrix is misaligned");
  struct Row {
    uint16_t x[8];
  } mine;
  std::memcpy(&mine, row, sizeof mine);
  Exchange all(mine);
  int g = self().lane / 4, t = self().lane % 4;
  for (int i = 0; i < 4; ++i) {
    uint16_t two[2];
    for (int j = 0; j < 2; ++j)
      two[j] = transposed ? all.of<Row>(8 * i + 2 * t + j).x[g] : all.of<Row>(8 * i + g).x[2 * t + j];
    std::memcpy(&r[i], two, 4);
  }
}
inline float half_at(uint32_t word, int which) {
  __half h;
  std::memcpy(&h, reinterpret_cast<unsigned char*>(&word) + 2 * which, 2);
  return __half2float(h);
}
}  // namespace emu

inline void ldmatrix(uint32_t (&r)[4], const void* row) { emu::load_matrices(r, row, false); }
inline void ldmatrix_trans(uint32_t (&r)[4], const void* row) { emu::load_matrices(r, row, true); }

inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Registers {
    uint32_t x[6];
  } mine = {{a[0], a[1], a[2], a[3], b0, b1}};
  emu::Exchange all(mine);
  auto word = [&](int lane, int i) { return all.of<Registers>(lane).x[i]; };
  int g = emu::self().lane / 4, t = emu::self().lane % 4;
  float out[4] = {c[0], c[1], c[2], c[3]};
  for (int k = 0; k < 16; ++k) {
    int owner = k % 8 / 2, part = k % 2, upper = k / 8;
    float x[2], y[2];
    for (int i = 0; i < 2; ++i) {
      x[i] = emu::half_at(word(4 * g + owner, i + 2 * upper), part);
      y[i] = emu::half_at(word(4 * (2 * t + i) + owner, 4 + upper), part);
    }
    for (int i = 0; i < 4; ++i) out[i] += x[i / 2] * y[i % 2];
  }
  for (int i = 0; i < 4; ++i) c[i] = out[i];
}

inline void mma_e4m3(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Registers {
    uint32_t x[6];
  } mine = {{a[0], a[1], a[2], a[3], b0, b1}};
  emu::Exchange all(mine);
  auto code = [&](int lane, int i, int byte) {
    auto bits = static_cast<__nv_fp8_storage_t>(all.of<Registers>(lane).x[i] >> 8 * byte);
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3)));
  };
  int g = emu::self().lane / 4, t = emu::self().lane % 4;
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 32; ++k)
      c[i] += code(4 * g + k % 16 / 4, i / 2 + k / 16 * 2, k % 4) *
              code(4 * (2 * t + i % 2) + k % 16 / 4, 4 + k / 16, k % 4);
}
