// Emulated: kernels/common/sm90.cuh.
#pragma once
#include <cuda.h>

#include "emulator.h"
#include "ptx.cuh"
#include "tensor_map.cuh"

using Barrier = uint64_t;

inline void barrier_init(Barrier* b, unsigned arrivals) { emu::mbarrier_init(b, arrivals); }
inline void barrier_init_fence() {}
inline void barrier_expect(Barrier* b, unsigned bytes) { emu::mbarrier_arrive(b, bytes); }
inline void barrier_arrive(Barrier* b) { emu::mbarrier_arrive(b, 0); }
inline void barrier_wait(Barrier* b, unsigned parity) { emu::mbarrier_wait(b, parity); }
inline void cluster_arrive() { emu::cluster_arrive(); }
inline void cluster_arrive_relaxed() { emu::cluster_arrive_relaxed(); }
inline void cluster_wait() { emu::cluster_wait(); }
inline unsigned cluster_rank() { return emu::self().rank; }
inline void fence_for_async() {}
inline void wait_for_earlier_kernels() {}
inline void let_next_kernel_start() {}
inline void prefetch_map(const CUtensorMap*) {}

namespace emu {
struct Box {
  Map map;
  int col, row, matrix;
  int targets = 0;
  void *to[16], *barrier[16];

  // TMA's 128-byte swizzle: bits 4-6 of the address are XORed with bits 7-9.
  void copy() const {
    if (map.head_dim % 8 || col % 8) fail("only whole chunks of 16 bytes are emulated");
    for (int i = 0; i < targets; ++i) {
      if (!aligned(to[i], 1024)) fail("a swizzled box wants 1 KiB alignment");
      for (int r = 0; r < map.box_rows; ++r)
        for (int c = 0; c < 64; c += 8) {
          bool inside = row + r < map.length && col + c < map.head_dim;
          size_t from = (static_cast<size_t>(matrix) * map.length + row + r) * map.head_dim + col + c;
          uintptr_t address = reinterpret_cast<uintptr_t>(to[i]) + r * 128 + c * 2;
          address ^= (address >> 7 & 7) << 4;
          copy_words<Eight>(reinterpret_cast<void*>(address), map.tensor + from, 16, inside);
        }
      mbarrier_complete(barrier[i], map.box_rows * 128);
    }
  }
};
inline void add_target(Box& box, void* to, void* barrier) {
  box.to[box.targets] = to, box.barrier[box.targets++] = barrier;
}
inline void start_box(const Box& box) {
  submit_async([](void* p) { static_cast<Box*>(p)->copy(); },
               [](void* p) { delete static_cast<Box*>(p); }, new Box(box));
}
inline Box make_box(const CUtensorMap* map, int col, int row, int matrix) {
  Box box;
  std::memcpy(&box.map, map, sizeof box.map);
  box.col = col, box.row = row, box.matrix = matrix;
  return box;
}
}  // namespace emu

inline void tma_load(void* to, const CUtensorMap* map, Barrier* b, int col, int row, int matrix) {
  emu::Box box = emu::make_box(map, col, row, matrix);
  emu::add_target(box, to, b);
  emu::start_box(box);
}
inline void tma_multicast(void* to, const CUtensorMap* map, Barrier* b, int col, int row, int matrix,
                          uint16_t blocks) {
  emu::Box box = emu::make_box(map, col, row, matrix);
  for (unsigned i = 0; i < emu::self().cluster; ++i)
    if (blocks >> i & 1) emu::add_target(box, emu::shared_of(to, i), emu::shared_of(b, i));
  emu::start_box(box);
}

namespace emu {
struct Bulk {
  unsigned char *to, *barrier;
  const unsigned char* from;
  unsigned bytes;
  void copy() const {
    copy_words<Eight>(to, from, bytes, true);
    mbarrier_complete(barrier, bytes);
  }
};
}  // namespace emu

inline void copy_to_block(unsigned rank, void* to, const void* from, unsigned bytes, Barrier* b) {
  if (!emu::aligned(to, 16) || !emu::aligned(from, 16) || bytes % 16) emu::fail("misaligned copy");
  auto bytes_of = [](const void* p) { return static_cast<const unsigned char*>(p); };
  auto* bulk = new emu::Bulk{static_cast<unsigned char*>(emu::shared_of(to, rank)),
                             static_cast<unsigned char*>(emu::shared_of(b, rank)), bytes_of(from),
                             bytes};
  emu::submit_async([](void* p) { static_cast<emu::Bulk*>(p)->copy(); },
                    [](void* p) { delete static_cast<emu::Bulk*>(p); }, bulk);
}

namespace emu {
struct Store {
  float4 *to, x;
  void* barrier;
  void copy() const {
    *to = x;
    mbarrier_complete(barrier, sizeof x);
  }
};
}  // namespace emu

inline void store_to_block(unsigned rank, float4* to, float4 x, Barrier* b) {
  if (!emu::aligned(to, 16)) emu::fail("misaligned store");
  auto* store =
      new emu::Store{static_cast<float4*>(emu::shared_of(to, rank)), x, emu::shared_of(b, rank)};
  emu::submit_async([](void* p) { static_cast<emu::Store*>(p)->copy(); },
                    [](void* p) { delete static_cast<emu::Store*>(p); }, store);
}
