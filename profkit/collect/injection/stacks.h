// A stack's hash  ->  its number. A new one is given to Python once, which writes down what it is.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "frames.h"
#include "state.h"

namespace recorder {

// Hash -> number. Read by every launch without a lock: small, so that it stays in the cache.
class StackTable {
 public:
  // 0 where the hash is not known.
  uint32_t find(uint64_t hash) const {
    const Slots& slots = *slots_.load(std::memory_order_acquire);
    const Slot& slot = slots.slot_of(hash);
    if (slot.hash.load(std::memory_order_acquire) != hash) return 0;
    return slot.number.load(std::memory_order_relaxed);
  }

  // Its number, the next one where it is new; 0 where there are too many.
  uint32_t add(uint64_t hash, bool* is_new) {
    const std::lock_guard<std::mutex> lock(guard_);
    *is_new = false;
    if (const uint32_t number = find(hash)) return number;
    if (count_ >= kMost) return 0;
    Slots* slots = slots_.load();
    if (2 * (count_ + 1) > slots->size()) slots = grow(*slots);
    *is_new = true;
    slots->put(hash, ++count_);
    return count_;
  }

 private:
  static constexpr int kFirstBits = 11;           // 2,048 slots of 16 bytes: 32 KB
  static constexpr uint32_t kMost = 1u << 17;
  struct Slot {
    std::atomic<uint64_t> hash{0};
    std::atomic<uint32_t> number{0};
  };
  struct Slots {
    explicit Slots(int bits) : bits(bits), slots(new Slot[size_t{1} << bits]) {}
    size_t size() const { return size_t{1} << bits; }
    Slot& slot_of(uint64_t hash) const {  // its own, or the empty one where it belongs
      const size_t mask = size() - 1;
      for (size_t at = hash >> (64 - bits);; at = (at + 1) & mask) {
        const uint64_t there = slots[at].hash.load(std::memory_order_acquire);
        if (there == hash || there == 0) return slots[at];
      }
    }
    void put(uint64_t hash, uint32_t number) const {
      Slot& slot = slot_of(hash);
      slot.number.store(number, std::memory_order_relaxed);
      slot.hash.store(hash, std::memory_order_release);
    }
    int bits;
    std::unique_ptr<Slot[]> slots;
  };

  Slots* grow(const Slots& old) {  // the old ones stay: others may be reading them
    auto* larger = new Slots(old.bits + 2);
    for (size_t at = 0; at < old.size(); ++at) {
      const Slot& slot = old.slots[at];
      if (slot.hash != 0) larger->put(slot.hash, slot.number);
    }
    slots_.store(larger, std::memory_order_release);
    return larger;
  }

  std::mutex guard_;
  uint32_t count_ = 0;
  std::atomic<Slots*> slots_{new Slots(kFirstBits)};
};
inline StackTable* stack_table = nullptr;  // never freed

enum class Frames : int { kUntried, kReadable, kOff };
inline std::atomic<Frames> frames{Frames::kUntried};
inline thread_local bool resolving = false;  // Python is being asked: what it launches is not ours
inline void (*before_naming)() = nullptr;    // what wants to be done when a new stack is met

inline void turn_frames_off(const std::string& why) {
  if (frames.exchange(Frames::kOff) != Frames::kOff) write_meta("lines", why);
}

// Python objects that are let go at the end of a block.
class Reference {
 public:
  explicit Reference(void* object) : object_(object) {}
  ~Reference() {
    if (object_) python.drop(object_);
  }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  void* get() const { return object_; }

 private:
  void* object_;
};

// torch.compile looks at every function of Python that a thread begins, ours too: not meanwhile. Only
// a function of C may be called to say so.
class Uncompiled {
 public:
  Uncompiled() {
    const Reference name(python.new_text("torch._C._dynamo.eval_frame"));
    const Reference module(name.get() ? python.imported_module(name.get()) : nullptr);
    if (module.get() == nullptr) return;
    choose_ = python.attribute(module.get(), "set_eval_frame");
    if (choose_ != nullptr) before_ = python.call(choose_, python.none, nullptr);
  }
  ~Uncompiled() {
    if (before_ != nullptr) const Reference off(python.call(choose_, before_, nullptr));
    const Reference function(choose_), compiler(before_);
  }
  Uncompiled(const Uncompiled&) = delete;
  Uncompiled& operator=(const Uncompiled&) = delete;

 private:
  void* choose_ = nullptr;
  void* before_ = nullptr;  // what looked at functions of this thread until now
};

// The GIL, with the program's pending exception put aside and its collector stopped: no tensor may
// die inside of a launch.
class Inside {
 public:
  Inside() : gil_(python.take_gil()) {
    python.take_error(&type_, &value_, &trace_);
    collects_ = python.stop_collector();
  }
  ~Inside() {
    python.clear_error();
    if (collects_) python.start_collector();
    python.put_error(type_, value_, trace_);
    python.give_gil(gil_);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  int gil_, collects_ = 0;
  void *type_ = nullptr, *value_ = nullptr, *trace_ = nullptr;
};

inline void find_call_of_module(void* module) {
  if (call_of_module.load() != nullptr) return;
  const Reference function(python.attribute(module, "find_module_call"));
  if (function.get() == nullptr) return;
  const Reference address(python.call(function.get(), nullptr));
  const long number = address.get() ? python.as_integer(address.get()) : 0;
  if (number > 0) call_of_module.store(reinterpret_cast<void*>(number));
}

enum class Named : int { kNot, kSame, kOther };

// Give a new stack to Python, which compares it with its own frames and writes it down.
inline Named name_stack(void* module, uint32_t number, Frame top) {
  const Reference codes(python.new_list(0)), offsets(python.new_list(0)),
      modules(python.new_list(0)), id(python.new_integer(number));
  for (Frame frame = top; frame; frame = skip_to_python(frame.previous())) {
    const Reference offset(python.new_integer(frame.offset()));
    python.append(codes.get(), frame.code());
    python.append(offsets.get(), offset.get());
    void* called = find_module(frame);
    if (called) python.append(modules.get(), called);
  }
  const Reference function(python.attribute(module, "write_stack"));
  if (function.get() == nullptr) return Named::kNot;
  const Reference same(python.call(function.get(), id.get(), codes.get(), offsets.get(),
                                   modules.get(), nullptr));
  if (same.get() == nullptr) return Named::kNot;  // it failed: this stack alone has no line
  return python.as_integer(same.get()) == 1 ? Named::kSame : Named::kOther;
}

// A stack seen for the first time: 0.1 to 0.4 ms, once.
inline uint32_t resolve_stack(Frame top) {
  resolving = true;
  uint32_t number = 0;
  {
    const Inside inside;
    const Uncompiled uncompiled;
    const Reference module(python.import_module("profkit_recorder_stacks"));
    if (module.get() == nullptr) {
      turn_frames_off("Python did not find profkit's hook (started with -I or -E?)");
    } else {
      find_call_of_module(module.get());
      if (before_naming) before_naming();
      bool is_new = false;
      number = stack_table->add(hash_frames(top), &is_new);
      if (is_new && name_stack(module.get(), number, top) == Named::kOther) {
        turn_frames_off("frames were not where they are in other Pythons of this version");
        number = 0;
      }
    }
  }
  resolving = false;
  return number;
}

inline bool may_read_frames() {
  const Frames now = frames.load(std::memory_order_relaxed);
  if (now != Frames::kUntried) return now == Frames::kReadable;
  static std::mutex guard;
  const std::lock_guard<std::mutex> lock(guard);
  if (frames.load() != Frames::kUntried) return frames.load() == Frames::kReadable;
  const std::string why = find_python();
  if (!why.empty()) {
    turn_frames_off(why);
    return false;
  }
  stack_table = new StackTable;
  frames.store(Frames::kReadable);
  return true;
}

// The number of this thread's stack; 0 where it runs no Python, or where it is new and may not be
// named. Whether it may is asked of a new stack only: of few of the launches.
template <typename MayName>
uint32_t find_stack(MayName may_name) {
  if (resolving || !may_read_frames()) return 0;
  const Frame top = find_top();
  if (!top) return 0;
  const uint32_t number = stack_table->find(hash_frames(top));
  if (number || !may_name() || python.is_finalizing()) return number;
  return resolve_stack(top);
}

}  // namespace recorder
