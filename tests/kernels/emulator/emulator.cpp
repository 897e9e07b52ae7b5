// The scheduler behind emulator.h. Compiled without sanitizers: it tells them what it does.
#include "emulator.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "context.h"

extern "C" {
#define WEAK __attribute__((weak))
WEAK void* __tsan_get_current_fiber(void);
WEAK void* __tsan_create_fiber(unsigned flags);
WEAK void __tsan_switch_to_fiber(void* fiber, unsigned flags);
WEAK void __tsan_acquire(void* p);
WEAK void __tsan_release(void* p);
WEAK void __sanitizer_start_switch_fiber(void** fake, const void* bottom, size_t size);
WEAK void __sanitizer_finish_switch_fiber(void* fake, const void** bottom, size_t* size);
}

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

namespace emu {
namespace {

constexpr size_t STACK = 256 * 1024;
constexpr unsigned NO_SYNC = 1;

void acquire(void* p) {
  if (__tsan_acquire) __tsan_acquire(p);
}
void release(void* p) {
  if (__tsan_release) __tsan_release(p);
}

struct Barrier {
  unsigned arrived = 0, generation = 0;
};
struct MBarrier {
  Barrier phase;
  unsigned count = 0, pending = 0;
  long bytes = 0;
};
struct Async {
  void (*work)(void*);
  void (*destroy)(void*);
  void* arg;
};
struct Warp {
  Barrier sync, data;
  unsigned alive = 0;
  volatile uint64_t slots[2][32 * 8];
};
struct Block {
  Barrier named[16];
  unsigned expected[16] = {};
  unsigned alive = 0;
  unsigned char* shared = nullptr;
  std::vector<Warp> warps;
};
struct Fiber : Self {
  Context context;
  unsigned char* stack = nullptr;
  void* tsan = nullptr;
  void* fake = nullptr;
  bool done = false;
  const Barrier* blocked = nullptr;  // on this barrier, until its generation moves on
  unsigned seen = 0, cluster_seen = 0;
  Block* block = nullptr;
  std::deque<std::vector<Copy>> groups;
  std::vector<Copy> open;
  std::deque<std::vector<std::pair<void (*)(void*), void*>>> works;
  std::vector<std::pair<void (*)(void*), void*>> open_works;
};

struct Machine {
  Context main;
  void* main_tsan = nullptr;
  void* main_fake = nullptr;
  const void* main_stack = nullptr;
  size_t main_size = 0;
  Fiber* current = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<unsigned char*> stacks;
  // ThreadSanitizer's view of threads, used again by the next cluster, which the launch orders after
  // this one anyway: making one takes longer than what most threads do.
  std::vector<void*> tsans;
  void* engines[64] = {};  // of asynchronous work, which nothing orders: used again much later
  unsigned engine = 0;
  std::map<void*, MBarrier> mbarriers;
  Async asyncs[1 << 16];  // plain memory: sanitizers watch what containers do
  unsigned submitted = 0, waiting = 0;
  Barrier cluster;
  unsigned alive = 0;
  Body body = nullptr;
  void* arg = nullptr;
  size_t shared_bytes = 0;
} machine;

void complete(Barrier& b, unsigned expected) {
  if (b.arrived > 0 && b.arrived >= expected) {
    b.arrived = 0;
    ++b.generation;
  }
}

void to_main(bool last) {
  Fiber* f = machine.current;
  if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(machine.main_tsan, NO_SYNC);
  if (__sanitizer_start_switch_fiber)
    __sanitizer_start_switch_fiber(last ? nullptr : &f->fake, machine.main_stack,
                                   machine.main_size);
  change(f->context, machine.main);
  if (__sanitizer_finish_switch_fiber)
    __sanitizer_finish_switch_fiber(f->fake, nullptr, nullptr);
}

void to_fiber(Fiber* f) {
  machine.current = f;
  if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(f->tsan, NO_SYNC);
  if (__sanitizer_start_switch_fiber)
    __sanitizer_start_switch_fiber(&machine.main_fake, f->stack, STACK);
  change(machine.main, f->context);
  if (__sanitizer_finish_switch_fiber)
    __sanitizer_finish_switch_fiber(machine.main_fake, nullptr, nullptr);
  machine.current = nullptr;
}

void wait(Barrier& b, unsigned generation) {
  Fiber* f = machine.current;
  while (b.generation == generation) {
    f->blocked = &b;
    f->seen = generation;
    to_main(false);
  }
  f->blocked = nullptr;
}

void arrive_and_wait(Barrier& b, unsigned expected) {
  unsigned generation = b.generation;
  ++b.arrived;
  complete(b, expected);
  wait(b, generation);
}

void entry() {
  Fiber* f = machine.current;
  if (__sanitizer_finish_switch_fiber)
    __sanitizer_finish_switch_fiber(nullptr, &machine.main_stack, &machine.main_size);
  acquire(&machine.body);  // the launch orders what the host wrote
  machine.body(machine.arg);
  commit_copies();
  for (Copy c; next_due_copy(0, &c);) do_copy(c);
  if (!f->works.empty() || !f->open_works.empty()) fail("products nobody waited for");
  release(&machine.alive);
  f->done = true;
  --machine.alive;
  complete(machine.cluster, machine.alive);
  --f->block->alive;
  for (int i = 0; i < 16; ++i)
    complete(f->block->named[i], f->block->expected[i] ? f->block->expected[i] : f->block->alive);
  Warp& w = f->block->warps[f->warp];
  --w.alive;
  complete(w.sync, w.alive);
  complete(w.data, w.alive);
  to_main(true);
}

unsigned seed() { return getenv("EMU_ORDER") ? atoi(getenv("EMU_ORDER")) : 0; }
std::mt19937& rng() {
  static std::mt19937 r(seed());
  return r;
}

void run_async() {
  unsigned skip = getenv("EMU_ORDER") ? rng()() % machine.waiting : 0, at = 0;
  while (!machine.asyncs[at].work || skip-- > 0) ++at;
  Async a = machine.asyncs[at];
  machine.asyncs[at].work = nullptr;
  if (--machine.waiting == 0) machine.submitted = 0;
  void* here = __tsan_get_current_fiber ? __tsan_get_current_fiber() : nullptr;
  void*& engine = machine.engines[machine.engine++ % 64];
  if (!engine && __tsan_create_fiber) engine = __tsan_create_fiber(0);
  if (engine) __tsan_switch_to_fiber(engine, NO_SYNC);
  acquire(a.arg);
  a.work(a.arg);
  a.destroy(a.arg);
  if (engine) __tsan_switch_to_fiber(here, NO_SYNC);
}

void run_cluster(dim3 grid, unsigned threads, unsigned cluster, unsigned x, unsigned y,
                 unsigned z) {
  machine.fibers.clear();
  machine.blocks.clear();
  machine.cluster = Barrier();
  machine.mbarriers.clear();
  machine.alive = threads * cluster;
  for (unsigned c = 0; c < cluster; ++c) {
    auto block = std::make_unique<Block>();
    block->alive = threads;
    block->warps.resize((threads + 31) / 32);
    void* p = nullptr;
    if (posix_memalign(&p, 1024, machine.shared_bytes ? machine.shared_bytes : 1)) abort();
    block->shared = static_cast<unsigned char*>(p);
    memset(p, 0xff, machine.shared_bytes);  // NaN to every kernel that reads before it writes
    for (unsigned t = 0; t < threads; ++t) {
      auto f = std::make_unique<Fiber>();
      f->thread = {t, 0, 0};
      f->block_dim = dim3(threads);
      f->grid_dim = grid;
      static_cast<Self&>(*f).block = {x + c, y, z};
      f->lane = t % 32, f->warp = t / 32, f->rank = c, f->cluster = cluster;
      ++block->warps[f->warp].alive;
      f->block = block.get();
      if (machine.stacks.size() == machine.fibers.size())
        machine.stacks.push_back(static_cast<unsigned char*>(malloc(STACK)));
      f->stack = machine.stacks[machine.fibers.size()];
      prepare(f->context, f->stack, STACK, entry);
      if (__tsan_create_fiber && machine.tsans.size() == machine.fibers.size())
        machine.tsans.push_back(__tsan_create_fiber(0));
      if (__tsan_create_fiber) f->tsan = machine.tsans[machine.fibers.size()];
      machine.fibers.push_back(std::move(f));
    }
    machine.blocks.push_back(std::move(block));
  }
  release(&machine.body);  // what the host wrote, and what shared memory was filled with
  std::vector<Fiber*> order;
  for (auto& f : machine.fibers) order.push_back(f.get());
  if (getenv("EMU_ORDER")) std::shuffle(order.begin(), order.end(), rng());
  while (machine.alive) {
    bool progress = false;
    for (Fiber* f : order) {
      if (f->done || (f->blocked && f->blocked->generation == f->seen)) continue;
      progress = true;
      to_fiber(f);
    }
    if (progress) continue;
    if (machine.waiting == 0) fail("deadlock: every thread waits");
    run_async();
  }
  if (machine.waiting > 0) fail("a block left while copies to it were on their way");
  acquire(&machine.alive);  // the end of the launch orders what the kernel wrote
  for (auto& b : machine.blocks) free(b->shared);
}

}  // namespace

Self& self() { return *machine.current; }
void yield() { to_main(false); }
void fail(const char* what) {
  if (machine.current)
    fprintf(stderr, "emulator: %s (block %u,%u thread %u)\n", what,
            static_cast<Self*>(machine.current)->block.x,
            static_cast<Self*>(machine.current)->block.y, machine.current->thread.x);
  else
    fprintf(stderr, "emulator: %s\n", what);
  fflush(nullptr);
  _exit(3);
}
void* shared() { return machine.current->block->shared; }
void* shared_of(const void* mine, int rank) {
  size_t offset = static_cast<const unsigned char*>(mine) - machine.current->block->shared;
  if (offset >= machine.shared_bytes) fail("not an address of this block's shared memory");
  return machine.blocks[rank]->shared + offset;
}
bool early_copies() { return getenv("EMU_EARLY") != nullptr; }
bool take_setting(const char* word) {
  const char* value = strchr(word, '=');
  if (!value || strncmp(word, "EMU_", 4)) return false;
  const std::string name(word, value++ - word);
  *value ? setenv(name.c_str(), value, 1) : unsetenv(name.c_str());
  rng().seed(seed());
  printf("setting %s\n", word);
  return true;
}

void block_barrier(int id, unsigned threads) {
  Block& b = *machine.current->block;
  b.expected[id] = threads;
  release(&b.named[id]);
  arrive_and_wait(b.named[id], threads ? threads : b.alive);
  acquire(&b.named[id]);
}
void block_arrive(int id, unsigned threads) {
  Block& b = *machine.current->block;
  b.expected[id] = threads;
  release(&b.named[id]);
  ++b.named[id].arrived;
  complete(b.named[id], threads);
}
void warp_barrier() {
  Warp& w = machine.current->block->warps[machine.current->warp];
  release(&w.sync);
  arrive_and_wait(w.sync, w.alive);
  acquire(&w.sync);
}
void cluster_arrive() {
  release(&machine.cluster);
  cluster_arrive_relaxed();
}
void cluster_arrive_relaxed() {
  machine.current->cluster_seen = machine.cluster.generation;
  ++machine.cluster.arrived;
  complete(machine.cluster, machine.alive);
}
void cluster_wait() {
  wait(machine.cluster, machine.current->cluster_seen);
  acquire(&machine.cluster);
}
namespace {
MBarrier& mbarrier(void* p) {
  auto at = machine.mbarriers.find(p);
  if (at == machine.mbarriers.end()) fail("a barrier that nobody initialized");
  return at->second;
}
void complete(MBarrier& b) {
  if (b.pending != 0 || b.bytes != 0) return;
  b.pending = b.count;
  ++b.phase.generation;
}
}  // namespace

void mbarrier_init(void* p, unsigned arrivals) {
  if (!aligned(p, 8)) fail("a barrier wants 8-byte alignment");
  MBarrier b;
  b.count = b.pending = arrivals;
  machine.mbarriers[p] = b;
}
void mbarrier_arrive(void* p, unsigned expect_bytes) {
  MBarrier& b = mbarrier(p);
  if (b.pending == 0) fail("more arrivals than the barrier was made for");
  release(p);
  b.bytes += expect_bytes;
  --b.pending;
  complete(b);
}
void mbarrier_complete(void* p, unsigned bytes) {
  MBarrier& b = mbarrier(p);
  release(p);
  b.bytes -= bytes;
  complete(b);
}
void mbarrier_wait(void* p, unsigned parity) {
  MBarrier& b = mbarrier(p);
  while ((b.phase.generation & 1) == parity) {
    machine.current->blocked = &b.phase;
    machine.current->seen = b.phase.generation;
    to_main(false);
  }
  machine.current->blocked = nullptr;
  acquire(p);
}
void submit_async(void (*work)(void*), void (*destroy)(void*), void* arg) {
  release(arg);
  if (machine.submitted == 1 << 16) fail("too many copies on their way");
  machine.asyncs[machine.submitted++] = {work, destroy, arg};
  ++machine.waiting;
  if (early_copies()) run_async();
}

const volatile uint64_t* Exchange::publish(const Words& mine) {
  Warp& w = machine.current->block->warps[machine.current->warp];
  volatile uint64_t* slots = w.slots[w.data.generation % 2];
  for (int i = 0; i < 8; ++i) slots[8 * machine.current->lane + i] = mine.word[i];
  arrive_and_wait(w.data, w.alive);
  return slots;
}

void submit_work(void (*work)(void*), void* arg) {
  if (early_copies())
    work(arg);
  else
    machine.current->open_works.push_back({work, arg});
}
void commit_works() {
  machine.current->works.push_back(std::move(machine.current->open_works));
  machine.current->open_works.clear();
}
void do_works(int groups) {
  auto& w = machine.current->works;
  for (; static_cast<int>(w.size()) > groups; w.pop_front())
    for (auto [work, arg] : w.front()) work(arg);
}

void start_copy(Copy copy) { machine.current->open.push_back(copy); }
void commit_copies() {
  machine.current->groups.push_back(std::move(machine.current->open));
  machine.current->open.clear();
}
bool next_due_copy(int groups, Copy* copy) {
  auto& g = machine.current->groups;
  while (static_cast<int>(g.size()) > groups) {
    if (!g.front().empty()) {
      *copy = g.front().back();
      g.front().pop_back();
      return true;
    }
    g.pop_front();
  }
  return false;
}

void run(dim3 grid, unsigned threads, size_t shared_bytes, unsigned cluster, Body body,
         void* arg) {
  printf("launch grid=%u,%u,%u threads=%u shared=%zu cluster=%u\n", grid.x, grid.y, grid.z, threads,
         shared_bytes, cluster);
  if (__tsan_get_current_fiber && !machine.main_tsan)
    machine.main_tsan = __tsan_get_current_fiber();
  machine.body = body, machine.arg = arg, machine.shared_bytes = shared_bytes;
  if (grid.x % cluster) fail("the grid is not a multiple of the cluster");
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; x += cluster)
        run_cluster(grid, threads, cluster, x, y, z);
}

}  // namespace emu
