// A call of the driver  ->  who made it: the stack of this thread, the node of autograd that runs.
#pragma once

#include <cupti.h>
#include <pthread.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "autograd.h"
#include "log.h"
#include "stacks.h"
#include "state.h"

namespace recorder {

constexpr uint32_t kNodeRuns = 1;   // a node of autograd runs
constexpr uint32_t kNodeBefore = 2; // none with a number does: it is the last one of this thread
constexpr uint32_t kReplays = 4;    // a CUDA graph is launched

#pragma pack(push, 1)
struct Launch {
  uint64_t sequence;     // of a node of autograd, or kNoNode
  uint32_t correlation;  // CUPTI's number of the call: a kernel's record has the same
  uint32_t stack;        // 0: no Python on this thread
  uint32_t forward;      // torch's number of the thread that made the node
  uint32_t how;
};
struct GraphNode {
  uint64_t id, original;  // original: of which it is a copy; 0 where it is none
  Launch made;
};
#pragma pack(pop)

inline thread_local Launch running = {};  // the call in which this thread is
inline thread_local bool in_call = false;

template <typename MayName>
Launch find_launch(uint32_t correlation, MayName may_name) {
  Launch launch{kNoNode, correlation, find_stack(may_name), 0, 0};
  if (!torch_is_watched.load(std::memory_order_relaxed)) return launch;
  static thread_local Running last;
  const Running node = find_running_node();
  if (node.is_there) launch.how |= kNodeRuns;
  if (node.sequence != kNoNode) {
    last = node;
    launch.sequence = node.sequence;
    launch.forward = node.thread;
  } else if (node.is_there || launch.stack == 0) {
    // Gradients are added up, and written to their parameter, by nodes without a number or by none.
    launch.how |= kNodeBefore;
    launch.sequence = last.sequence;
    launch.forward = last.thread;
  }
  return launch;
}

// While memory is taken, locks are held which a thread with the GIL may be waiting for.
inline bool may_name_in(const char* call) {
  return call == nullptr ||
         (std::strncmp(call, "cuMemAlloc", 10) != 0 && std::strncmp(call, "cuMemFree", 9) != 0);
}

inline bool launches_graph(CUpti_CallbackId id) {
  return id == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch ||
         id == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz;
}

inline void note_call(CUpti_CallbackId id, const CUpti_CallbackData* data) {
  if (data->callbackSite != CUPTI_API_ENTER) {
    in_call = false;
    return;
  }
  if (resolving) return;
  const auto may_name = [data] { return may_name_in(data->functionName); };
  running = find_launch(data->correlationId, may_name);
  if (launches_graph(id)) running.how |= kReplays;
  in_call = true;
  push_row("launches", running);
}

// A node of a CUDA graph: made by the call in which this thread is, or copied from another node.
inline void note_graph_node(CUpti_CallbackId id, const CUpti_ResourceData* data) {
  const auto* graph = static_cast<const CUpti_GraphData*>(data->resourceDescriptor);
  if (graph == nullptr || graph->node == nullptr) return;
  GraphNode node{};
  cuptiGetGraphNodeId(graph->node, &node.id);
  if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED && graph->originalNode != nullptr) {
    cuptiGetGraphNodeId(graph->originalNode, &node.original);
    node.made.sequence = kNoNode;
  } else {
    const auto never = [] { return false; };  // the driver may hold locks: no GIL
    node.made = in_call ? running : find_launch(0, never);
  }
  push_row("graphs", node);
}

inline void CUPTIAPI called(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                            const void* data) {
  if (!logs_are_open.load(std::memory_order_relaxed)) return;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API)
    note_call(id, static_cast<const CUpti_CallbackData*>(data));
  else if (domain == CUPTI_CB_DOMAIN_RESOURCE)
    note_graph_node(id, static_cast<const CUpti_ResourceData*>(data));
}

// PROFKIT_LINES=0: nothing is walked, nothing is patched.
inline bool lines_are_wanted() {
  const char* text = std::getenv("PROFKIT_LINES");
  return text == nullptr || std::strcmp(text, "0") != 0;
}

using Wanted = bool (*)(const char*);

// Have the calls told that `wanted` names, and the nodes of graphs; or no longer.
inline void tell_calls(bool on, CUpti_SubscriberHandle subscriber, Wanted wanted) {
  for (uint32_t id = 1; id < CUPTI_DRIVER_TRACE_CBID_SIZE; ++id) {
    const char* name = nullptr;
    if (cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, id, &name) != CUPTI_SUCCESS) continue;
    if (name == nullptr) continue;
    if (wanted(name) || std::strncmp(name, "cuGraphAdd", 10) == 0)
      cuptiEnableCallback(on, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id);
  }
  for (const auto id :
       {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED})
    cuptiEnableCallback(on, subscriber, CUPTI_CB_DOMAIN_RESOURCE, id);
}

inline void watch_launches(CUpti_SubscriberHandle subscriber, Wanted wanted) {
  if (!lines_are_wanted()) return;
  before_naming = watch_torch;
  pthread_atfork(nullptr, nullptr, [] { logs_are_open.store(false); });
  tell_calls(true, subscriber, wanted);
}

}  // namespace recorder
