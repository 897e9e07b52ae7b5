// A CUDA program  ->  what it launched, copied and waited for, as flat files. Loaded by the driver.
//
// CUDA_INJECTION64_PATH names this library; the driver calls InitializeInjection in cuInit. Records
// of CUPTI's activity API go into one file a kind: PROFKIT_TIMELINE/<pid>.{kernels,copies,calls,
// ranges}, fixed-size little-endian structs that profkit/program/readers/injected.py reads. Names
// are numbered in the order of <pid>.names. Only calls that launch, copy, wait or allocate are
// recorded: every further one costs the host time, and the host is what is being watched.
#include <cupti.h>

#include <cxxabi.h>
#include <dlfcn.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "injection/launches.h"
#include "injection/state.h"

// Not in every CUPTI: null where the library that is loaded has no such function.
extern "C" CUptiResult CUPTIAPI cuptiActivityEnableRuntimeApi(CUpti_CallbackId, uint8_t)
    __attribute__((weak));
extern "C" CUptiResult CUPTIAPI cuptiActivityEnableDriverApi(CUpti_CallbackId, uint8_t)
    __attribute__((weak));

namespace {

using namespace recorder;

constexpr size_t kBuffer = 4u << 20;
constexpr uint32_t kFlushMs = 500;  // what a killed program leaves behind is at most this old

#pragma pack(push, 1)
struct Kernel {
  uint64_t start, end, node;
  uint32_t correlation, device, stream, name, graph;
  int32_t grid[3], block[3];
  uint32_t shared_memory, registers;
};
struct Copy {
  uint64_t start, end, node, bytes;
  uint32_t correlation, device, stream, graph;
  uint8_t kind, source, target, flags;
};
struct Call {
  uint64_t start, end;
  uint32_t correlation, thread, name;
};
struct Range {
  uint64_t time;
  uint32_t id, thread, name, phase;
};
#pragma pack(pop)
constexpr uint8_t kMemset = 255;  // beside CUPTI's copy kinds

CUpti_SubscriberHandle subscriber = nullptr;
uint64_t earliest = 0;  // CUPTI's time before which nothing is kept

template <typename Record>
void write(Kind kind, const Record& record) {
  if (FILE* f = open_file(kind)) std::fwrite(&record, sizeof(Record), 1, f);
}

uint32_t number(const std::string& name) {
  const auto next = static_cast<uint32_t>(state->names.size());
  const auto [at, is_new] = state->names.emplace(name, next);
  if (is_new) {
    std::string line = name;
    for (char& c : line)
      if (c == '\n' || c == '\r') c = ' ';
    if (FILE* f = open_file(kNames)) std::fprintf(f, "%s\n", line.c_str());
  }
  return at->second;
}

uint32_t kernel_name(const char* mangled) {
  auto& known = state->kernels;
  const std::string key = mangled ? mangled : "";
  const auto at = known.find(key);
  if (at != known.end()) return at->second;
  int status = 1;
  char* plain = abi::__cxa_demangle(key.c_str(), nullptr, nullptr, &status);
  const uint32_t id = number(status == 0 && plain ? plain : key);
  std::free(plain);
  known.emplace(key, id);
  return id;
}

uint32_t call_name(CUpti_CallbackDomain domain, uint32_t id) {
  const uint64_t key = (static_cast<uint64_t>(domain) << 32) | id;
  const auto at = state->calls.find(key);
  if (at != state->calls.end()) return at->second;
  const char* name = nullptr;
  cuptiGetCallbackName(domain, id, &name);
  return state->calls[key] = number(name ? name : "unknown");
}

void take(const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& k = *reinterpret_cast<const CUpti_ActivityKernel9*>(record);
      if (k.start < earliest) break;
      write(kKernels,
            Kernel{k.start, k.end, k.graphNodeId, k.correlationId, k.deviceId, k.streamId,
                   kernel_name(k.name), k.graphId, {k.gridX, k.gridY, k.gridZ},
                   {k.blockX, k.blockY, k.blockZ},
                   static_cast<uint32_t>(k.staticSharedMemory + k.dynamicSharedMemory),
                   k.registersPerThread});
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& c = *reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
      if (c.start < earliest) break;
      write(kCopies, Copy{c.start, c.end, c.graphNodeId, c.bytes, c.correlationId, c.deviceId,
                          c.streamId, c.graphId, c.copyKind, c.srcKind, c.dstKind, c.flags});
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2: {
      const auto& c = *reinterpret_cast<const CUpti_ActivityMemcpyPtoP4*>(record);
      if (c.start < earliest) break;
      write(kCopies, Copy{c.start, c.end, c.graphNodeId, c.bytes, c.correlationId, c.deviceId,
                          c.streamId, c.graphId, c.copyKind, c.srcKind, c.dstKind, c.flags});
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& m = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      if (m.start < earliest) break;
      write(kCopies, Copy{m.start, m.end, m.graphNodeId, m.bytes, m.correlationId, m.deviceId,
                          m.streamId, m.graphId, kMemset, 0, static_cast<uint8_t>(m.memoryKind), 0});
      break;
    }
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: {
      const auto& a = *reinterpret_cast<const CUpti_ActivityAPI*>(record);
      if (a.start < earliest) break;
      const auto domain = a.kind == CUPTI_ACTIVITY_KIND_RUNTIME ? CUPTI_CB_DOMAIN_RUNTIME_API
                                                                : CUPTI_CB_DOMAIN_DRIVER_API;
      write(kCalls, Call{a.start, a.end, a.correlationId, a.threadId, call_name(domain, a.cbid)});
      break;
    }
    case CUPTI_ACTIVITY_KIND_MARKER: {
      const auto& m = *reinterpret_cast<const CUpti_ActivityMarker2*>(record);
      if (m.timestamp < earliest) break;
      write(kRanges, Range{m.timestamp, m.id, m.objectId.pt.threadId,
                           m.name ? number(m.name) : UINT32_MAX, static_cast<uint32_t>(m.flags)});
      break;
    }
    case CUPTI_ACTIVITY_KIND_DEVICE: {
      const auto& d = *reinterpret_cast<const CUpti_ActivityDevice5*>(record);
      if (FILE* f = open_file(kMeta))
        std::fprintf(f, "device\t%u\t%s\t%u.%u\t%u\t%llu\t%u\n", d.id, d.name ? d.name : "",
                     d.computeCapabilityMajor, d.computeCapabilityMinor, d.numMultiprocessors,
                     static_cast<unsigned long long>(d.globalMemoryBandwidth), d.l2CacheSize);
      break;
    }
    default:
      break;
  }
}

void CUPTIAPI requested(uint8_t** buffer, size_t* size, size_t* most) {
  *size = kBuffer;
  *most = 0;
  if (posix_memalign(reinterpret_cast<void**>(buffer), 8, kBuffer) != 0) {
    *buffer = nullptr;
    *size = 0;
  }
}

void CUPTIAPI completed(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  if (getpid() == state->pid) {  // a forked child has its parent's buffers, and nothing to say
    const std::lock_guard<std::mutex> lock(state->guard);
    CUpti_Activity* record = nullptr;
    while (valid > 0 && cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
      take(record);
    size_t dropped = 0;
    if (cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped) == CUPTI_SUCCESS && dropped > 0)
      if (FILE* f = open_file(kMeta)) std::fprintf(f, "dropped\t%zu\n", dropped);
    for (FILE* f : state->files)
      if (f) std::fflush(f);
  }
  std::free(buffer);
}

void finish() {
  if (getpid() != state->pid) return;
  cuptiActivityFlushAll(1);
  const std::lock_guard<std::mutex> lock(state->guard);
  if (FILE* f = open_file(kMeta)) std::fprintf(f, "whole\t1\n");
  for (FILE* f : state->files)
    if (f) std::fflush(f);
}

// Whether the timeline needs a call. Names grow suffixes (_v2, _ptsz): beginnings are compared.
bool wanted(const char* name) {
  static const char* const begins[] = {
      "cudaLaunch",       "cudaGraphLaunch",     "cudaMemcpy",          "cudaMemset",
      "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize",
      "cudaMalloc",       "cudaFree",            "cudaHostAlloc",       "cudaHostRegister",
      "cudaProfilerStart", "cudaProfilerStop",   "cudaStreamWaitEvent",
      "cuLaunch",         "cuGraphLaunch",       "cuMemcpy",            "cuMemset",
      "cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize",  "cuMemAlloc",
      "cuMemFree",        "cuProfilerStart",     "cuProfilerStop"};
  for (const char* begin : begins)
    if (std::strncmp(name, begin, std::strlen(begin)) == 0) return true;
  return false;
}

// Where a graph is captured: what is launched there runs later, or never.
bool captures(const char* name) {
  for (const char* begin : {"cudaStreamBeginCapture", "cudaStreamEndCapture"})
    if (std::strncmp(name, begin, std::strlen(begin)) == 0) return true;
  return false;
}

using EnableOne = CUptiResult (*)(CUpti_CallbackId, uint8_t);

// Only the wanted calls of a domain; with a CUPTI too old to choose, all of the runtime's.
void enable_calls(CUpti_CallbackDomain domain, uint32_t count, EnableOne enable,
                  CUpti_ActivityKind all) {
  if (enable == nullptr) {
    if (all == CUPTI_ACTIVITY_KIND_RUNTIME) cuptiActivityEnable(all);
    return;
  }
  for (uint32_t id = 1; id < count; ++id) {
    const char* name = nullptr;
    if (cuptiGetCallbackName(domain, id, &name) == CUPTI_SUCCESS && name &&
        (wanted(name) || captures(name)))
      enable(id, 1);
  }
}

// NVTX ranges reach CUPTI through its own injection entry: the very library that is loaded.
void enable_ranges() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&cuptiActivityEnable), &info) != 0 && info.dli_fname)
    setenv("NVTX_INJECTION64_PATH", info.dli_fname, 0);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MARKER);
}

void say(const char* what, CUptiResult status) {
  const char* text = nullptr;
  cuptiGetResultString(status, &text);
  if (FILE* f = open_file(kMeta)) {
    std::fprintf(f, "error\t%s: %s\n", what, text ? text : "unknown");
    std::fflush(f);
  }
}

// CUPTI has one subscription a process. Whoever has it keeps others (torch.profiler, which starts
// later) from taking the activity records away from us: it is taken even where no line is wanted.
void subscribe() {
  const CUptiResult status = cuptiSubscribe(&subscriber, called, nullptr);
  if (status == CUPTI_SUCCESS) {
    watch_launches(subscriber, wanted);
    return;
  }
  say("another tool (torch.profiler, nsys, Proton) holds CUPTI's one subscription, and may take "
      "records away: run the program without it; no line of Python is known meanwhile",
      status);
}

// PROFKIT_AFTER: the host's monotonic time, in nanoseconds, at which the recording begins.
void begin_late() {
  const char* text = std::getenv("PROFKIT_AFTER");
  if (text == nullptr) return;
  timespec clock;
  clock_gettime(CLOCK_MONOTONIC, &clock);
  const uint64_t now = clock.tv_sec * 1'000'000'000ull + clock.tv_nsec;
  const uint64_t begin = std::strtoull(text, nullptr, 10);
  uint64_t stamp = 0;
  if (begin > now && cuptiGetTimestamp(&stamp) == CUPTI_SUCCESS) earliest = stamp + (begin - now);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  const char* folder = std::getenv("PROFKIT_TIMELINE");
  if (folder == nullptr || state != nullptr) return 1;
  state = new State;
  state->folder = folder;
  state->pid = getpid();
  const char* rank = std::getenv("RANK");
  if (FILE* f = open_file(kMeta)) {
    uint32_t version = 0;
    cuptiGetVersion(&version);
    std::fprintf(f, "cupti\t%u\nrank\t%s\n", version, rank ? rank : "");
    std::fflush(f);
  }
  begin_late();
  subscribe();
  CUptiResult status = cuptiActivityRegisterCallbacks(requested, completed);
  if (status != CUPTI_SUCCESS) {
    say("another profiler is at work in this process", status);
    return 1;
  }
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_DEVICE);
  status = cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  if (status != CUPTI_SUCCESS) say("kernels cannot be recorded", status);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY2);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET);
  enable_calls(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_SIZE,
               cuptiActivityEnableRuntimeApi, CUPTI_ACTIVITY_KIND_RUNTIME);
  enable_calls(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_SIZE,
               cuptiActivityEnableDriverApi, CUPTI_ACTIVITY_KIND_DRIVER);
  enable_ranges();
  cuptiActivityFlushPeriod(kFlushMs);
  std::atexit(finish);
  return 1;
}

// What lines cost is measured in one process, with them and without by turns (tests/gpu/lines).
extern "C" __attribute__((visibility("default"))) void ProfkitWatchLines(int on) {
  if (state == nullptr || subscriber == nullptr) return;
  logs_are_open.store(on != 0);
  tell_calls(on != 0, subscriber, wanted);
}
