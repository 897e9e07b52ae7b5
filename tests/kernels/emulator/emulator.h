/* CUDA threads as fibers on the CPU: what kernels see of the machine.

   Compiled in front of a variant in place of nvcc's own declarations; common/ beside this file
   replaces the headers that hold PTX. Barriers, warp exchanges and copies in flight behave as the
   programming model says, no better: a shuffle orders no memory, an asynchronous copy lands as late
   (or, on request, as early) as it may. With ThreadSanitizer each CUDA thread is a thread of its
   own, so that a missing barrier is reported as a data race; with AddressSanitizer the block's
   shared memory and the tensors end where they end.
*/
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace emu {

struct Self {
  uint3 thread, block;
  dim3 block_dim, grid_dim;
  int lane, warp, rank;  // rank: of the block in its cluster
  unsigned cluster;
};
struct Copy {
  void* to;
  const void* from;
  size_t bytes;
  bool valid;
};
using Body = void (*)(void*);

Self& self();
void run(dim3 grid, unsigned threads, size_t shared_bytes, unsigned cluster, Body body, void* arg);
void yield();                               // lets other threads run
[[noreturn]] void fail(const char* what);   // prints where, exits with 3
void* shared();                             // this block's dynamic shared memory
void* shared_of(const void* mine, int rank);  // the same place in another block of the cluster
bool early_copies();

void block_barrier(int id, unsigned threads);  // threads = 0: all that are alive
void warp_barrier();
void cluster_arrive();
void cluster_arrive_relaxed();  // orders no memory
void cluster_wait();
// Every lane gives eight words; returns the 32 lanes' words, valid until the next exchange. Orders
// no memory, and sanitizers do not see it.
struct Words {
  uint64_t word[8];
};
class Exchange {
 public:
  template <class T>
  explicit Exchange(const T& mine) {
    static_assert(sizeof(T) <= sizeof(Words), "an exchange carries 64 bytes");
    Words words = {};
    std::memcpy(&words, &mine, sizeof(T));
    slots_ = publish(words);
  }
  template <class T>
  T of(int lane) const {
    Words words = read(slots_, lane & 31);
    T value;
    std::memcpy(&value, &words, sizeof(T));
    return value;
  }

 private:
  static const volatile uint64_t* publish(const Words& mine);
  static Words read(const volatile uint64_t* slots, int lane);
  const volatile uint64_t* slots_;
};

void mbarrier_init(void* barrier, unsigned arrivals);
void mbarrier_arrive(void* barrier, unsigned expect_bytes);
void mbarrier_complete(void* barrier, unsigned bytes);
void mbarrier_wait(void* barrier, unsigned parity);
// Work of the copy engine: done once every thread waits, or at once if copies are early.
void submit_async(void (*work)(void*), void (*destroy)(void*), void* arg);

// Work of this thread that runs until it is waited for; groups as with copies.
void submit_work(void (*work)(void*), void* arg);
void commit_works();
void do_works(int groups);
void block_arrive(int id, unsigned threads);  // without waiting

void start_copy(Copy copy);
void commit_copies();
// The next copy that has to be here if at most `groups` newest groups may be pending.
bool next_due_copy(int groups, Copy* copy);

inline void do_copy(const Copy& c) {
  auto* to = static_cast<unsigned char*>(c.to);
  auto* from = static_cast<const unsigned char*>(c.from);
  for (size_t i = 0; i < c.bytes; ++i) to[i] = c.valid ? from[i] : 0;
}
inline bool aligned(const void* p, size_t n) { return reinterpret_cast<uintptr_t>(p) % n == 0; }

template <class T>
T from_lane(T mine, int lane) {
  return Exchange(mine).of<T>(lane);
}

}  // namespace emu

#define threadIdx (emu::self().thread)
#define blockIdx (emu::self().block)
#define blockDim (emu::self().block_dim)
#define gridDim (emu::self().grid_dim)

#undef __launch_bounds__
#define __launch_bounds__(...)

using std::max;
using std::min;

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __uint_as_float(unsigned x) {
  float y;
  std::memcpy(&y, &x, sizeof y);
  return y;
}
inline unsigned __float_as_uint(float x) {
  unsigned y;
  std::memcpy(&y, &x, sizeof y);
  return y;
}

inline void __syncthreads() { emu::block_barrier(0, 0); }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  if (mask != 0xffffffffu) emu::fail("__syncwarp with part of a warp is not emulated");
  emu::warp_barrier();
}
template <class T>
T __shfl_xor_sync(unsigned, T x, int mask) {
  return emu::from_lane(x, emu::self().lane ^ mask);
}
template <class T>
T __shfl_sync(unsigned, T x, int lane) {
  return emu::from_lane(x, lane);
}
inline bool __any_sync(unsigned, bool x) {
  emu::Exchange all(static_cast<int>(x));
  for (int lane = 0; lane < 32; ++lane)
    if (all.of<int>(lane)) return true;
  return false;
}
