// Rows of one thread  ->  a file of its own, through memory that the kernel writes out.
//
// No lock, nothing to flush: what a killed program had written is in the file. The file ends in
// zeros; every row has a field that is never zero.
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <string>

#include "state.h"

namespace recorder {

inline std::atomic<bool> logs_are_open{true};  // not in a forked child, whose files are its parent's

template <typename Row>
class Log {
 public:
  explicit Log(const char* suffix) : suffix_(suffix) {}
  ~Log() {
    if (next_ != nullptr) munmap(end_ - kRows, kBytes);
    if (handle_ >= 0) close(handle_);
  }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void push(const Row& row) {
    if (next_ == end_ && !map_more()) return;
    *next_++ = row;
  }

 private:
  static constexpr size_t kRows = 8192;
  static constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, from Linux 5.14 on
  static constexpr size_t kBytes = kRows * sizeof(Row);  // whole pages, whatever a row takes

  // Pages that were written are mapped three times as fast as those of a hole in a file.
  bool write_zeros() {
    static const char zeros[kBytes] = {};
    return posix_fallocate(handle_, size_, kBytes) == 0 &&
           pwrite(handle_, zeros, kBytes, size_) == static_cast<ssize_t>(kBytes);
  }

  bool map_more() {
    if (failed_ || !logs_are_open.load(std::memory_order_relaxed)) return false;
    failed_ = true;  // until it has come out well
    if (next_ != nullptr) munmap(end_ - kRows, kBytes);
    next_ = end_ = nullptr;
    if (handle_ < 0) {
      const std::string path = state->folder + "/" + std::to_string(state->pid) + "-" +
                               std::to_string(syscall(SYS_gettid)) + "." + suffix_;
      handle_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      if (handle_ < 0) return false;
    }
    // Room first: a page that cannot be written to a full disk would end the program.
    if (!write_zeros()) {
      write_meta("error", std::string("no room for the ") + suffix_ + ": some have no line");
      return false;
    }
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, handle_, size_);
    if (memory == MAP_FAILED) return false;
    madvise(memory, kBytes, kPopulateWrite);  // where it fails, each page comes when it is written to
    size_ += kBytes;
    next_ = static_cast<Row*>(memory);
    end_ = next_ + kRows;
    failed_ = false;
    return true;
  }

  const char* suffix_;
  int handle_ = -1;
  off_t size_ = 0;
  Row* next_ = nullptr;
  Row* end_ = nullptr;
  bool failed_ = false;
};

// The calling thread's log of a kind of rows; null where the thread is at its end.
//
// It goes with its thread, but not with the process: libraries free their memory while that ends,
// after all objects of the main thread are gone.
template <typename Row>
Log<Row>* find_log(const char* suffix) {
  static thread_local Log<Row>* own = nullptr;
  static thread_local bool is_over = false;
  if (own != nullptr || is_over) return own;
  static pthread_key_t key;
  static const int made = pthread_key_create(&key, [](void* log) {
    own = nullptr;
    is_over = true;
    delete static_cast<Log<Row>*>(log);
  });
  own = new Log<Row>(suffix);
  if (made == 0) pthread_setspecific(key, own);
  return own;
}

template <typename Row>
void push_row(const char* suffix, const Row& row) {
  if (Log<Row>* log = find_log<Row>(suffix)) log->push(row);
}

}  // namespace recorder
