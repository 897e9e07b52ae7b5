// What all of the library shares: the process that is recorded, and its files.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <unordered_map>

namespace recorder {

enum Kind { kKernels, kCopies, kCalls, kRanges, kNames, kMeta, kKinds };
inline const char* const kSuffix[kKinds] = {"kernels", "copies", "calls",
                                            "ranges",  "names",  "meta"};

struct State {
  std::mutex guard;  // of all that is here
  std::string folder;
  pid_t pid = 0;
  FILE* files[kKinds] = {};
  std::unordered_map<std::string, uint32_t> names;
  std::unordered_map<std::string, uint32_t> kernels;  // mangled name -> name: demangling is slow
  std::unordered_map<uint64_t, uint32_t> calls;       // domain and callback id -> name
};
inline State* state = nullptr;  // never freed: finish() runs after static destructors have

inline FILE* open_file(Kind kind) {
  FILE*& file = state->files[kind];
  if (file == nullptr) {
    const std::string path =
        state->folder + "/" + std::to_string(state->pid) + "." + kSuffix[kind];
    file = std::fopen(path.c_str(), "wb");
  }
  return file;
}

// A word and its value into <pid>.meta. Takes the guard: not for those who have it.
inline void write_meta(const char* word, const std::string& value) {
  const std::lock_guard<std::mutex> lock(state->guard);
  if (FILE* file = open_file(kMeta)) {
    std::fprintf(file, "%s\t%s\n", word, value.c_str());
    std::fflush(file);
  }
}

}  // namespace recorder
