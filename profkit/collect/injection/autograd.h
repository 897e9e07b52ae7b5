// PyTorch's backward pass  ->  for each node of autograd the stack that made it.
//
// Every node takes a number from at::sequence_number::get_and_increment, in whatever library it is
// made: the slots through which libraries call that function are pointed to ours, which calls it and
// writes down who asked. A launch in the backward pass has the number of the node that runs.
#pragma once

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "log.h"
#include "stacks.h"
#include "state.h"

namespace recorder {

constexpr uint64_t kNoNode = ~uint64_t{0};
constexpr const char* kTakeNumber = "_ZN2at15sequence_number17get_and_incrementEv";

#pragma pack(push, 1)
struct Node {            // of autograd, when it is made
  uint64_t sequence, parent;       // parent: the node that ran meanwhile (create_graph), or kNoNode
  uint32_t thread;                 // torch's number of the thread that makes it: from 1
  uint32_t stack, parent_thread, unused;
};
#pragma pack(pop)

struct Torch {
  uint64_t (*take_number)() = nullptr;
  uint64_t (*thread_number)() = nullptr;
  void* (*running_node)(void* result) = nullptr;  // through the caller's memory, as objects are
  size_t sequence = 0, thread = 0;  // where a node keeps its number, and its maker's thread
};
inline Torch torch;
inline std::atomic<bool> torch_is_watched{false};

// What torch::autograd::get_current_node() returns, whichever kind of pointer it is: a
// std::shared_ptr<Node> of two words, or from torch 2.13 on an intrusive_ptr of one.
class NodeHolder {
 public:
  NodeHolder() { torch.running_node(words_); }
  ~NodeHolder() {
    const bool is_shared = words_[1] != kUnwritten;
    if (is_shared)
      reinterpret_cast<std::shared_ptr<char>*>(words_)->~shared_ptr();
    else if (words_[0] != nullptr)
      let_go(words_[0]);
  }
  NodeHolder(const NodeHolder&) = delete;
  NodeHolder& operator=(const NodeHolder&) = delete;
  const char* get() const { return words_[0]; }

 private:
  // The engine holds a node that runs at least twice: ours is never the last reference.
  static void let_go(char* node) {
    auto* count = reinterpret_cast<uint64_t*>(node + sizeof(void*));
    if (static_cast<uint32_t>(__atomic_load_n(count, __ATOMIC_ACQUIRE)) > 2)
      __atomic_fetch_sub(count, uint64_t{1}, __ATOMIC_ACQ_REL);
  }
  static char* const kUnwritten;
  char* words_[2] = {nullptr, kUnwritten};
};
inline char* const NodeHolder::kUnwritten =
    reinterpret_cast<char*>(uintptr_t{0x5A5A5A5A5A5A5A50});  // no pointer of a program

struct Running {  // the node that runs on this thread
  bool is_there = false;
  uint64_t sequence = kNoNode;
  uint32_t thread = 0;  // of the forward pass
};

inline Running find_running_node() {
  Running running;
  const NodeHolder node;
  if (node.get() == nullptr) return running;
  uint64_t thread = 0;
  std::memcpy(&running.sequence, node.get() + torch.sequence, sizeof running.sequence);
  std::memcpy(&thread, node.get() + torch.thread, sizeof thread);
  running.thread = static_cast<uint32_t>(thread);
  running.is_there = true;
  return running;
}

// Stands for get_and_increment.
inline uint64_t take_number() {
  const uint64_t sequence = torch.take_number();
  if (resolving || !logs_are_open.load(std::memory_order_relaxed)) return sequence;
  const auto thread = static_cast<uint32_t>(torch.thread_number());
  const Running parent = find_running_node();
  const uint32_t stack = find_stack([] { return true; });
  const Node node{sequence, parent.sequence, thread, stack, parent.thread, 0};
  push_row("nodes", node);
  return sequence;
}

// The tables of one library that say through which slots it calls others.
struct Tables {
  const char* strings = nullptr;
  const ElfW(Sym)* symbols = nullptr;
  const ElfW(Rela)* calls = nullptr;
  const ElfW(Rela)* others = nullptr;
  size_t calls_size = 0, others_size = 0;
};

inline Tables find_tables(const dl_phdr_info& info) {
  Tables tables;
  const ElfW(Dyn)* entry = nullptr;
  for (int at = 0; at < info.dlpi_phnum; ++at)
    if (info.dlpi_phdr[at].p_type == PT_DYNAMIC)
      entry = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[at].p_vaddr);
  for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    switch (entry->d_tag) {
      case DT_STRTAB: tables.strings = reinterpret_cast<const char*>(entry->d_un.d_ptr); break;
      case DT_SYMTAB: tables.symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr); break;
      case DT_JMPREL: tables.calls = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr); break;
      case DT_PLTRELSZ: tables.calls_size = entry->d_un.d_val; break;
      case DT_RELA: tables.others = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr); break;
      case DT_RELASZ: tables.others_size = entry->d_un.d_val; break;
      default: break;
    }
  }
  return tables;
}

// Point a slot to our function; slots are often read-only after loading.
inline bool patch_slot(void** slot) {
  if (*slot == reinterpret_cast<void*>(&take_number)) return false;
  const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot) & ~(size - 1));
  if (mprotect(page, size, PROT_READ | PROT_WRITE) != 0) return false;
  *slot = reinterpret_cast<void*>(&take_number);
  return true;
}

inline int patch_slots(const dl_phdr_info& info, const Tables& tables, const ElfW(Rela)* entries,
                       size_t size) {
  int patched = 0;
  for (size_t at = 0; entries != nullptr && at < size / sizeof(ElfW(Rela)); ++at) {
    const auto kind = ELF64_R_TYPE(entries[at].r_info);
    if (kind != R_X86_64_JUMP_SLOT && kind != R_X86_64_GLOB_DAT) continue;
    const auto& symbol = tables.symbols[ELF64_R_SYM(entries[at].r_info)];
    if (std::strcmp(tables.strings + symbol.st_name, kTakeNumber) != 0) continue;
    patched += patch_slot(reinterpret_cast<void**>(info.dlpi_addr + entries[at].r_offset));
  }
  return patched;
}

inline int patch_library(dl_phdr_info* info, size_t, void* count) {
  const Tables tables = find_tables(*info);
  const auto* here = reinterpret_cast<const char*>(info->dlpi_addr);
  // Some (the kernel's own) give offsets where others give addresses: those call nothing of torch.
  if (tables.strings < here || tables.symbols == nullptr) return 0;
  *static_cast<int*>(count) += patch_slots(*info, tables, tables.calls, tables.calls_size) +
                               patch_slots(*info, tables, tables.others, tables.others_size);
  return 0;
}

inline int take_library_count(dl_phdr_info* info, size_t, void* count) {
  *static_cast<unsigned long long*>(count) = info->dlpi_adds;
  return 1;
}

// Libraries that came since the last time are patched too: an extension may make nodes of its own.
inline void patch_new_libraries() {
  static unsigned long long seen = 0;
  static int total = 0;
  unsigned long long count = 0;
  dl_iterate_phdr(take_library_count, &count);
  if (count == seen) return;
  seen = count;
  int patched = 0;
  dl_iterate_phdr(patch_library, &patched);
  total += patched;
  if (patched) write_meta("patched", std::to_string(total));
}

// "24 48": where a node keeps its number and its thread, which our hook found out in Python.
inline bool read_node_layout() {
  const char* text = std::getenv("PROFKIT_NODE");
  if (text == nullptr) return false;
  char* rest = nullptr;
  torch.sequence = std::strtoul(text, &rest, 10);
  torch.thread = std::strtoul(rest, nullptr, 10);
  return torch.sequence != 0 && torch.thread != 0;
}

// Called with the GIL, at each new stack: one thread at a time.
inline void watch_torch() {
  if (torch_is_watched.load()) {
    patch_new_libraries();
    return;
  }
  static bool tried = false;
  if (tried) return;
  void* library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return;  // not yet, or never
  tried = true;
  const auto find = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  const bool complete = find(torch.take_number, kTakeNumber) &&
                        find(torch.thread_number, "_ZN2at14RecordFunction15currentThreadIdEv") &&
                        find(torch.running_node, "_ZN5torch8autograd16get_current_nodeEv");
  if (!complete || !read_node_layout()) {
    write_meta("backward", "this version of torch does not tell which node of autograd runs");
    return;
  }
  patch_new_libraries();
  torch_is_watched.store(true);
}

}  // namespace recorder
