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

// What no other CUDA thread can reach (registers, an exchange between lanes) has no races:
// ThreadSanitizer is spared it. Never of a function that reads or writes shared or global memory.
#define UNWATCHED __attribute__((no_sanitize("thread")))

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
bool take_setting(const char* word);  // NAME=value, and NAME= for none: holds from the next launch on

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
  UNWATCHED explicit Exchange(const T& mine) {
    static_assert(sizeof(T) <= sizeof(Words), "an exchange carries 64 bytes");
    Words words = {};
    __builtin_memcpy(&words, &mine, sizeof(T));
    slots_ = publish(words);
  }
  template <class T>
  UNWATCHED T of(int lane) const {
    constexpr size_t WORDS = (sizeof(T) + 7) / 8;
    uint64_t words[WORDS];
    for (size_t i = 0; i < WORDS; ++i) words[i] = slots_[8 * (lane & 31) + i];
    T value;
    __builtin_memcpy(&value, words, sizeof(T));
    return value;
  }

 private:
  static const volatile uint64_t* publish(const Words& mine);
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

// Words of any memory, to the bytes of which it may belong in other types.
typedef uint64_t Eight __attribute__((may_alias));
typedef uint32_t Four __attribute__((may_alias));

template <class Word>
void copy_words(void* to, const void* from, size_t bytes, bool valid) {
  for (size_t i = 0; i < bytes / sizeof(Word); ++i)
    static_cast<Word*>(to)[i] = valid ? static_cast<const Word*>(from)[i] : 0;
}
inline void do_copy(const Copy& c) {  // of 4, 8 or 16 bytes, and aligned to them
  c.bytes == 4 ? copy_words<Four>(c.to, c.from, 4, c.valid)
               : copy_words<Eight>(c.to, c.from, c.bytes, c.valid);
}
inline bool aligned(const void* p, size_t n) { return reinterpret_cast<uintptr_t>(p) % n == 0; }

// A half's bits as a float, exactly: the header's own function takes several times as long.
UNWATCHED inline float to_float(uint64_t bits) {
  uint32_t all = (bits & 0x7fff) << 13;
  float x;
  __builtin_memcpy(&x, &all, sizeof x);
  x *= 0x1p112f;  // the exponents' distance; subnormals come out right
  if (all >= 0x7c00u << 13) x = all == 0x7c00u << 13 ? INFINITY : NAN;
  return bits & 0x8000 ? -x : x;
}

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
