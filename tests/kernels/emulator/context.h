// Where a CUDA thread of the emulator stands, and how to go there.
//
// swapcontext would do, but asks the system twice at each switch, and AddressSanitizer wipes what it
// knows of the whole stack there: three quarters of a run. On x86-64 a few instructions do as well.
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)

extern "C" void emu_switch(void** from, void* to);
asm(R"(
.text
.globl emu_switch
.type emu_switch, @function
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_switch, .-emu_switch
)");

namespace emu {

struct Context {
  void* top = nullptr;  // of the stack, below which lie the registers that a function keeps
};

inline void prepare(Context& c, unsigned char* stack, size_t bytes, void (*entry)()) {
  auto end = reinterpret_cast<uintptr_t>(stack + bytes) / 16 * 16;
  auto* words = reinterpret_cast<void**>(end) - 8;
  for (int i = 0; i < 8; ++i) words[i] = nullptr;  // six registers, the entry, nowhere to return to
  words[6] = reinterpret_cast<void*>(entry);
  c.top = words;
}
inline void change(Context& from, Context& to) { emu_switch(&from.top, to.top); }

}  // namespace emu

#else
#include <ucontext.h>

namespace emu {

using Context = ucontext_t;

inline void prepare(Context& c, unsigned char* stack, size_t bytes, void (*entry)()) {
  getcontext(&c);
  c.uc_stack.ss_sp = stack;
  c.uc_stack.ss_size = bytes;
  c.uc_link = nullptr;
  makecontext(&c, entry, 0);
}
inline void change(Context& from, Context& to) { swapcontext(&from, &to); }

}  // namespace emu
#endif
