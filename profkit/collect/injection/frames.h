// A thread's Python frames  ->  one number that stands for them, read without the GIL.
//
// A thread reads its own frames while it waits in a call of the driver: nobody else changes them.
// Where the fields lie is known of CPython 3.11 and 3.12, and told by _Py_DebugOffsets from 3.13 on.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace recorder {

// Functions of the Python that the program brings; null where it is another one.
struct Python {
  void* (*thread_state)() = nullptr;
  int (*take_gil)() = nullptr;
  void (*give_gil)(int) = nullptr;
  const char* (*version)() = nullptr;
  int (*is_finalizing)() = nullptr;
  void* (*import_module)(const char*) = nullptr;
  void* (*imported_module)(void* name) = nullptr;  // null where it was not imported
  void* (*new_text)(const char*) = nullptr;
  void* (*attribute)(void*, const char*) = nullptr;
  void* (*call)(void*, ...) = nullptr;
  void* (*new_list)(long) = nullptr;
  int (*append)(void*, void*) = nullptr;
  void* (*new_integer)(long) = nullptr;
  long (*as_integer)(void*) = nullptr;
  void (*take_error)(void**, void**, void**) = nullptr;
  void (*put_error)(void*, void*, void*) = nullptr;
  void (*clear_error)() = nullptr;
  int (*stop_collector)() = nullptr;
  int (*start_collector)() = nullptr;
  void (*drop)(void*) = nullptr;
  void* cell_type = nullptr;
  void* none = nullptr;
};
inline Python python;

// Where fields lie, in bytes.
struct Layout {
  size_t current;       // in the thread's state: its frame, or what points to that
  bool through_cframe;  // before 3.13 a struct of the C stack points to the frame
  size_t cframe_frame;  // where in that struct
  size_t code, previous, instruction, owner, locals;  // in a frame
  size_t bytecode;      // in a code object: its instructions
  char owned_by_c;      // owners from this on are no frames of Python
  uintptr_t tag;        // bits of a reference that are no address
};
inline Layout layout;

constexpr Layout kLayout311 = {56, true, 8, 32, 48, 56, 69, 72, 184, 3, 0};
constexpr Layout kLayout312 = {56, true, 0, 0, 8, 56, 70, 72, 192, 3, 0};
constexpr size_t kCell = 16;  // PyCellObject.ob_ref
constexpr size_t kType = 8;   // PyObject.ob_type
constexpr ptrdiff_t kLine = 64;  // bytes of a line of the cache

// Words of _Py_DebugOffsets at which what we need stands.
struct DebugWords {
  size_t current, frame, bytecode;
};
constexpr DebugWords kWords313 = {23, 28, 43};
constexpr DebugWords kWords314 = {26, 31, 48};

inline bool read_debug_offsets(const DebugWords& at, uintptr_t tag) {
  const auto* words = static_cast<const uint64_t*>(dlsym(RTLD_DEFAULT, "_PyRuntime"));
  if (words == nullptr || std::memcmp(words, "xdebugpy", 8) != 0) return false;
  const bool free_threaded = words[2] != 0;
  if (free_threaded) return false;  // frames there are other threads' business too
  const uint64_t* frame = words + at.frame;
  const uint64_t size = frame[0];
  layout = {words[at.current], false,    0,        frame[2], frame[1], frame[3],
            frame[5],          frame[4], words[at.bytecode], 3, tag};
  const bool plausible = size >= 64 && size <= 256 && layout.code < size &&
                         layout.previous < size && layout.instruction < size &&
                         layout.owner < size && layout.locals <= size &&
                         layout.current < 1024 && layout.bytecode < 1024;
  return plausible;
}

inline bool choose_layout(const char* version) {
  if (std::strncmp(version, "3.11.", 5) == 0) {
    layout = kLayout311;
    return true;
  }
  if (std::strncmp(version, "3.12.", 5) == 0) {
    layout = kLayout312;
    return true;
  }
  if (std::strncmp(version, "3.13.", 5) == 0) return read_debug_offsets(kWords313, 0);
  if (std::strncmp(version, "3.14.", 5) == 0) return read_debug_offsets(kWords314, 7);
  return false;
}

template <typename Function>
bool find_symbol(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

// Why frames cannot be read; empty where they can.
inline std::string find_python() {
  if (!find_symbol(python.version, "Py_GetVersion")) return "no Python in this process";
  const bool complete =
      find_symbol(python.thread_state, "PyGILState_GetThisThreadState") &
      find_symbol(python.take_gil, "PyGILState_Ensure") &
      find_symbol(python.give_gil, "PyGILState_Release") &
      (find_symbol(python.is_finalizing, "Py_IsFinalizing") ||
       find_symbol(python.is_finalizing, "_Py_IsFinalizing")) &
      find_symbol(python.import_module, "PyImport_ImportModule") &
      find_symbol(python.imported_module, "PyImport_GetModule") &
      find_symbol(python.new_text, "PyUnicode_FromString") &
      find_symbol(python.none, "_Py_NoneStruct") &
      find_symbol(python.attribute, "PyObject_GetAttrString") &
      find_symbol(python.call, "PyObject_CallFunctionObjArgs") &
      find_symbol(python.new_list, "PyList_New") & find_symbol(python.append, "PyList_Append") &
      find_symbol(python.new_integer, "PyLong_FromLong") &
      find_symbol(python.as_integer, "PyLong_AsLong") &
      find_symbol(python.take_error, "PyErr_Fetch") &
      find_symbol(python.put_error, "PyErr_Restore") &
      find_symbol(python.clear_error, "PyErr_Clear") &
      find_symbol(python.stop_collector, "PyGC_Disable") &
      find_symbol(python.start_collector, "PyGC_Enable") & find_symbol(python.drop, "Py_DecRef") &
      find_symbol(python.cell_type, "PyCell_Type");
  const std::string version = python.version();
  if (complete && choose_layout(version.c_str())) return "";
  return "the frames of this Python are not known: " + version.substr(0, version.find(' '));
}

// One frame of the interpreter, seen from outside.
class Frame {
 public:
  explicit Frame(const char* at) : at_(at) {}
  explicit operator bool() const { return at_ != nullptr; }
  Frame previous() const { return Frame(field<const char*>(layout.previous)); }
  bool is_python() const { return at_[layout.owner] < layout.owned_by_c; }
  void* code() const { return untag(field<uintptr_t>(layout.code)); }
  // Frames of a thread follow each other in memory, the callers below: bring in some lines of the
  // cache that the walk comes to, so that it does not wait for each.
  void prefetch_callers(int begin, int end) const {
    for (int line = begin; line < end; ++line) __builtin_prefetch(at_ - kLine * line);
  }
  const char* instruction() const { return field<const char*>(layout.instruction); }
  long offset() const {
    return instruction() - static_cast<const char*>(code()) - static_cast<long>(layout.bytecode);
  }
  // Its first argument: the module, where the code is nn.Module's own.
  void* first_argument() const {
    auto* object = static_cast<char*>(untag(field<uintptr_t>(layout.locals)));
    if (object == nullptr) return nullptr;
    void* type = *reinterpret_cast<void**>(object + kType);
    if (type != python.cell_type) return object;
    return *reinterpret_cast<void**>(object + kCell);
  }

 private:
  template <typename T>
  T field(size_t offset) const {
    return *reinterpret_cast<const T*>(at_ + offset);
  }
  static void* untag(uintptr_t word) { return reinterpret_cast<void*>(word & ~layout.tag); }
  const char* at_;
};

inline Frame skip_to_python(Frame frame) {
  while (frame && !frame.is_python()) frame = frame.previous();
  return frame;
}

// The innermost frame of this thread; none where it runs no Python.
inline Frame find_top() {
  const auto* thread = static_cast<const char*>(python.thread_state());
  if (thread == nullptr) return Frame(nullptr);
  const char* frame = *reinterpret_cast<const char* const*>(thread + layout.current);
  if (layout.through_cframe && frame != nullptr)
    frame = *reinterpret_cast<const char* const*>(frame + layout.cframe_frame);
  return skip_to_python(Frame(frame));
}

// nn.Module's own code through which every module is called; null until torch is there.
inline std::atomic<void*> call_of_module{nullptr};

// The module that a frame calls; null for all other frames.
inline void* find_module(Frame frame) {
  const void* const call = call_of_module.load(std::memory_order_relaxed);
  return call != nullptr && frame.code() == call ? frame.first_argument() : nullptr;
}

constexpr int kAhead = 4;    // lines of the cache: two frames
constexpr int kModules = 2;  // of a walk: a module's place in its model says what is further out

// Where in their code the frames are, and which modules they call, as one number that is not zero.
inline uint64_t hash_frames(Frame top) {
  constexpr uint64_t kMix = 0x9E3779B97F4A7C15ull;
  const void* const call = call_of_module.load(std::memory_order_relaxed);
  uint64_t hash = 0x243F6A8885A308D3ull;
  int modules = 0;
  top.prefetch_callers(1, kAhead);
  for (Frame frame = top; frame; frame = skip_to_python(frame.previous())) {
    frame.prefetch_callers(kAhead, kAhead + 2);
    hash = (hash ^ reinterpret_cast<uint64_t>(frame.instruction())) * kMix;
    hash ^= hash >> 32;
    if (call == nullptr || frame.code() != call) continue;
    hash = (hash ^ reinterpret_cast<uint64_t>(frame.first_argument())) * kMix;
    if (++modules == kModules) break;
  }
  return hash | 1;
}

}  // namespace recorder
