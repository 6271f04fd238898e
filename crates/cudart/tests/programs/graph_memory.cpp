// Memory that graphs allocate, and what a capture says while it goes on.
#include "cuda.h"

#include <cstring>

#ifndef WITH_TOOLKIT
using cudaGraphNode_t = struct CUgraphNode_st*;
struct cudaGraphEdgeData {
  unsigned char ports[3], reserved[5];
};
enum cudaGraphNodeType { cudaGraphNodeTypeMemAlloc = 10, cudaGraphNodeTypeMemFree };
enum cudaGraphMemAttributeType { cudaGraphMemAttrUsedMemCurrent, cudaGraphMemAttrUsedMemHigh };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum { cudaGraphInstantiateFlagAutoFreeOnLaunch = 1 };
extern "C" {
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t*);
cudaError_t cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType, void*);
cudaError_t cudaDeviceSetGraphMemAttribute(int, cudaGraphMemAttributeType, void*);
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t, cudaGraphNodeType*);
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus*, unsigned long long*,
                                     cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, size_t*);
}
#endif

namespace {

const size_t BYTES = 1 << 20;

unsigned long long used(cudaGraphMemAttributeType figure) {
  unsigned long long bytes = 7;
  OK(cudaDeviceGetGraphMemAttribute(0, figure, &bytes));
  return bytes;
}

// What the next node of a stream depends on: checked to be one node, or none.
cudaGraphNode_t dependency(cudaStream_t stream, cudaGraph_t* graph) {
  cudaStreamCaptureStatus status;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 9;
  OK(cudaStreamGetCaptureInfo(stream, &status, nullptr, graph, &nodes, &edges, &count));
  EXPECT(status == cudaStreamCaptureStatusActive && count < 2);
  const cudaGraphEdgeData plain{};
  EXPECT(count == 0 || std::memcmp(edges, &plain, sizeof plain) == 0);
  return count == 0 ? nullptr : nodes[0];
}

cudaGraphNodeType type_of(cudaGraphNode_t node) {
  cudaGraphNodeType type;
  OK(cudaGraphNodeGetType(node, &type));
  return type;
}

}  // namespace

int main() {
  cudaStream_t stream;
  void *within, *left, *host;
  OK(cudaStreamCreate(&stream));
  OK(cudaMallocHost(&host, BYTES));

  cudaGraph_t graph, told = nullptr;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT(!dependency(stream, &told) && told);
  OK(cudaMallocAsync(&within, BYTES, stream));
  EXPECT(type_of(dependency(stream, &told)) == cudaGraphNodeTypeMemAlloc);
  OK(cudaMallocAsync(&left, BYTES, stream));
  OK(cudaMemsetAsync(within, 5, BYTES, stream));
  OK(cudaMemcpyAsync(left, within, BYTES, cudaMemcpyDeviceToDevice, stream));
  OK(cudaFreeAsync(within, stream));
  EXPECT(type_of(dependency(stream, &told)) == cudaGraphNodeTypeMemFree);
  size_t count = 0;
  OK(cudaGraphGetNodes(told, nullptr, &count));
  EXPECT(count == 5);
  OK(cudaStreamEndCapture(stream, &graph));
  EXPECT(graph == told && used(cudaGraphMemAttrUsedMemCurrent) == 0);

  cudaStreamCaptureStatus status;
  OK(cudaStreamGetCaptureInfo(stream, &status, nullptr, &told, nullptr, nullptr, &count));
  EXPECT(status == cudaStreamCaptureStatusNone);

  cudaGraphExec_t executable;
  OK(cudaGraphInstantiate(&executable, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
  OK(cudaGraphDestroy(graph));
  for (int i = 0; i < 3; ++i) {
    std::memset(host, 0, BYTES);
    OK(cudaGraphLaunch(executable, stream));
    OK(cudaMemcpyAsync(host, left, BYTES, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    EXPECT(static_cast<char*>(host)[0] == 5 && static_cast<char*>(host)[BYTES - 1] == 5);
  }
  EXPECT(used(cudaGraphMemAttrUsedMemCurrent) == BYTES);
  EXPECT(used(cudaGraphMemAttrUsedMemHigh) == 2 * BYTES);
  OK(cudaGraphExecDestroy(executable));
  OK(cudaFreeAsync(left, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT(used(cudaGraphMemAttrUsedMemCurrent) == 0);
  unsigned long long none = 0;
  OK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &none));
  EXPECT(used(cudaGraphMemAttrUsedMemHigh) == 0);
  std::puts("all is right");
}
