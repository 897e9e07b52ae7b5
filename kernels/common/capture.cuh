/* While a stream is captured into a graph: whether the kernel ahead of a launch is this library's own.

   A kernel that may start before the one ahead of it has ended gains where that one lets it, and only
   then. What stands ahead is known at capture: what the stream depends on is what was captured last.
   Outside of a capture nothing tells, so the answer is no.
*/
#pragma once
#include <cuda_runtime.h>

namespace capture {

// The one node that the stream depends on, and which capture it is of; false: none or several.
inline bool last_node(cudaStream_t stream, unsigned long long* id, cudaGraphNode_t* node) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
#if CUDART_VERSION >= 13000
  auto error = cudaStreamGetCaptureInfo(stream, &status, id, nullptr, &nodes, &edges, &count);
#else
  auto error = cudaStreamGetCaptureInfo_v3(stream, &status, id, nullptr, &nodes, &edges, &count);
#endif
  if (error != cudaSuccess || status != cudaStreamCaptureStatusActive || count != 1) return false;
  *node = nodes[0];
  return true;
}

}  // namespace capture

// What this library captured last, in this thread.
struct OwnLast {
  static bool is_ahead(cudaStream_t stream) {
    unsigned long long id = 0;
    cudaGraphNode_t node = nullptr;
    return capture::last_node(stream, &id, &node) && id == known().id && node == known().node;
  }
  static void remember(cudaStream_t stream) {
    if (!capture::last_node(stream, &known().id, &known().node)) known() = {};
  }

 private:
  struct Node {
    unsigned long long id = 0;
    cudaGraphNode_t node = nullptr;
  };
  static Node& known() {
    static thread_local Node last;
    return last;
  }
};
