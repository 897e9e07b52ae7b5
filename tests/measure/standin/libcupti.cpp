// CUPTI for machines without a GPU: says what it was asked, in order, and gives records when told.
//
// STANDIN_LOG names the file of what was asked; STANDIN_BUSY=1: another tool has the subscription.
// standin_*: what a test calls to have something launched.
#include <cupti.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <set>
#include <utility>

namespace {
CUpti_BuffersCallbackRequestFunc request = nullptr;
CUpti_BuffersCallbackCompleteFunc complete = nullptr;
CUpti_CallbackFunc callback = nullptr;
std::set<std::pair<int, CUpti_CallbackId>> enabled;
std::map<CUpti_CallbackId, const char*> runtime = {
    {CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, "cudaLaunchKernel_v7000"}};
std::map<CUpti_CallbackId, const char*> driver = {
    {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, "cuLaunchKernel"},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, "cuGraphLaunch"},
    {CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync_v2"}};

void log_line(const char* format, ...) {
  const char* path = std::getenv("STANDIN_LOG");
  if (path == nullptr) return;
  if (FILE* file = std::fopen(path, "a")) {
    va_list list;
    va_start(list, format);
    std::vfprintf(file, format, list);
    va_end(list);
    std::fputc('\n', file);
    std::fclose(file);
  }
}

uint64_t clock_now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000ull + now.tv_nsec;
}

void tell(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  if (callback && enabled.count({domain, id})) callback(nullptr, domain, id, data);
}

void tell_call(CUpti_CallbackId id, uint32_t correlation, CUpti_ApiCallbackSite site) {
  CUpti_CallbackData data = {};
  data.correlationId = correlation;
  data.callbackSite = site;
  data.functionName = driver[id];
  tell(CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
}

void tell_node(CUpti_CallbackId id, uint64_t node, uint64_t original) {
  CUpti_GraphData graph = {};
  graph.node = reinterpret_cast<CUgraphNode>(node);
  graph.originalNode = reinterpret_cast<CUgraphNode>(original);
  CUpti_ResourceData data = {};
  data.resourceDescriptor = &graph;
  tell(CUPTI_CB_DOMAIN_RESOURCE, id, &data);
}

template <typename Record>
void give(const Record& record) {
  if (complete == nullptr) return;
  uint8_t* buffer = nullptr;
  size_t size = 0, most = 0;
  request(&buffer, &size, &most);
  std::memcpy(buffer, &record, sizeof record);
  complete(nullptr, 0, buffer, size, sizeof record);
}
}  // namespace

extern "C" {
CUptiResult CUPTIAPI cuptiGetVersion(uint32_t* version) { *version = 130001; return CUPTI_SUCCESS; }
CUptiResult CUPTIAPI cuptiGetTimestamp(uint64_t* time) { *time = clock_now(); return CUPTI_SUCCESS; }
CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult status, const char** text) {
  *text = status == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? "multiple subscribers" : "error";
  return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc call, void*) {
  log_line("subscribe");
  if (std::getenv("STANDIN_BUSY")) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  callback = call;
  *handle = reinterpret_cast<CUpti_SubscriberHandle>(1);
  return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiEnableCallback(uint32_t on, CUpti_SubscriberHandle, CUpti_CallbackDomain domain,
                                         CUpti_CallbackId id) {
  log_line("callback %u %u %u", on, static_cast<unsigned>(domain), id);
  if (on)
    enabled.insert({domain, id});
  return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc begin,
                                                    CUpti_BuffersCallbackCompleteFunc end) {
  log_line("register");
  request = begin;
  complete = end;
  return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind) { return CUPTI_SUCCESS; }
CUptiResult CUPTIAPI cuptiActivityEnableRuntimeApi(CUpti_CallbackId, uint8_t) { return CUPTI_SUCCESS; }
CUptiResult CUPTIAPI cuptiActivityEnableDriverApi(CUpti_CallbackId, uint8_t) { return CUPTI_SUCCESS; }
CUptiResult CUPTIAPI cuptiActivityFlushPeriod(uint32_t) { return CUPTI_SUCCESS; }
CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t) { return CUPTI_SUCCESS; }
CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  *dropped = 0;
  return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityGetNextRecord(uint8_t* buffer, size_t, CUpti_Activity** record) {
  if (*record != nullptr) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(buffer);
  return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id, const char** name) {
  const auto& names = domain == CUPTI_CB_DOMAIN_RUNTIME_API ? runtime : driver;
  const auto at = names.find(id);
  if (at == names.end()) return CUPTI_ERROR_INVALID_PARAMETER;
  *name = at->second;
  return CUPTI_SUCCESS;
}
// A node of a graph is its own number here.
CUptiResult CUPTIAPI cuptiGetGraphNodeId(CUgraphNode node, uint64_t* id) {
  *id = reinterpret_cast<uint64_t>(node);
  return CUPTI_SUCCESS;
}

// The record of a call that was made now.
static void give_call(CUpti_CallbackId id, uint32_t correlation, uint64_t now) {
  CUpti_ActivityAPI call = {};
  call.kind = CUPTI_ACTIVITY_KIND_DRIVER;
  call.cbid = id;
  call.start = now;
  call.end = now + 500;
  call.correlationId = correlation;
  give(call);
}

// One kernel of a microsecond, launched now, and its call; in a graph where it has a node.
__attribute__((visibility("default"))) void standin_launch(uint32_t correlation, uint64_t node) {
  const CUpti_CallbackId id = node ? CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch : CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel;
  tell_call(id, correlation, CUPTI_API_ENTER);
  tell_call(id, correlation, CUPTI_API_EXIT);
  const uint64_t now = clock_now();
  give_call(id, correlation, now);
  CUpti_ActivityKernel9 kernel = {};
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.start = now + 1000;
  kernel.end = now + 2000;
  kernel.correlationId = correlation;
  kernel.name = "tiny";
  kernel.gridX = kernel.gridY = kernel.gridZ = kernel.blockX = kernel.blockY = kernel.blockZ = 1;
  kernel.graphId = node ? 1 : 0;
  kernel.graphNodeId = node;
  give(kernel);
}
// A launch that a stream's capture makes a node of.
__attribute__((visibility("default"))) void standin_capture(uint32_t correlation, uint64_t node) {
  tell_call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, correlation, CUPTI_API_ENTER);
  tell_node(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, node, 0);
  tell_call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, correlation, CUPTI_API_EXIT);
  give_call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, correlation, clock_now());
}

// A node that an executable graph has of another.
__attribute__((visibility("default"))) void standin_clone(uint64_t node, uint64_t original) {
  tell_node(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, node, original);
}
}
