// What a captured graph consists of: programs ask whether there is anything in it.
#include "cuda.h"

#include <algorithm>
#include <vector>

#ifndef WITH_TOOLKIT
using cudaGraphNode_t = struct CUgraphNode_st*;
enum cudaGraphNodeType {
  cudaGraphNodeTypeMemcpy = 1,
  cudaGraphNodeTypeMemset,
  cudaGraphNodeTypeHost,
};
enum cudaGraphMemAttributeType { cudaGraphMemAttrUsedMemCurrent, cudaGraphMemAttrUsedMemHigh };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
extern "C" {
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t*);
cudaError_t cudaGraphGetRootNodes(cudaGraph_t, cudaGraphNode_t*, size_t*);
cudaError_t cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType, void*);
cudaError_t cudaDeviceSetGraphMemAttribute(int, cudaGraphMemAttributeType, void*);
cudaError_t cudaDeviceGraphMemTrim(int);
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t, cudaGraphNodeType*);
cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t, cudaStreamCaptureStatus*, unsigned long long*, void*, void*, void*, void*);
}
#endif

namespace {

unsigned long long id_of(cudaStream_t stream, cudaStreamCaptureStatus expected) {
  cudaStreamCaptureStatus status;
  unsigned long long id = 0;
  OK(cudaStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr));
  EXPECT(status == expected);
  return id;
}

void nothing(void*) {}

}  // namespace

int main() {
  cudaStream_t stream;
  void *host, *device;
  OK(cudaStreamCreate(&stream));
  OK(cudaMallocHost(&host, 4096));
  OK(cudaMalloc(&device, 4096));

  cudaGraph_t empty, graph;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  const auto first = id_of(stream, cudaStreamCaptureStatusActive);
  OK(cudaStreamEndCapture(stream, &empty));
  id_of(stream, cudaStreamCaptureStatusNone);
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT(id_of(stream, cudaStreamCaptureStatusActive) != first);
  OK(cudaMemsetAsync(device, 1, 4096, stream));
  OK(cudaMemcpyAsync(host, device, 4096, cudaMemcpyDeviceToHost, stream));
  OK(cudaLaunchHostFunc(stream, nothing, nullptr));
  OK(cudaStreamEndCapture(stream, &graph));

  unsigned long long bytes = 7;
  OK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &bytes));
  EXPECT(bytes == 0);
  OK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &bytes));
  EXPECT(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &bytes) ==
         cudaErrorInvalidValue);
  OK(cudaDeviceGraphMemTrim(0));
  EXPECT(cudaDeviceGraphMemTrim(1) == cudaErrorInvalidDevice);
  cudaGetLastError();

  size_t count = 9;
  OK(cudaGraphGetRootNodes(empty, nullptr, &count));
  EXPECT(count == 0);
  OK(cudaGraphGetRootNodes(graph, nullptr, &count));
  EXPECT(count == 1);
  cudaGraphNode_t root = nullptr, first_of_all = nullptr;
  OK(cudaGraphGetRootNodes(graph, &root, &count));
  OK(cudaGraphGetNodes(graph, &first_of_all, &count));
  EXPECT(root == first_of_all && root);
  OK(cudaGraphGetNodes(empty, nullptr, &count));
  EXPECT(count == 0);
  OK(cudaGraphGetNodes(graph, nullptr, &count));
  EXPECT(count == 3);
  std::vector<cudaGraphNode_t> nodes(5, reinterpret_cast<cudaGraphNode_t>(&count));
  count = 2;
  OK(cudaGraphGetNodes(graph, nodes.data(), &count));
  EXPECT(count == 2 && nodes[2] == nodes[4]);
  count = 5;
  OK(cudaGraphGetNodes(graph, nodes.data(), &count));
  EXPECT(count == 3 && !nodes[3] && !nodes[4]);
  std::vector<int> types;
  for (size_t i = 0; i < count; ++i) {
    cudaGraphNodeType type;
    OK(cudaGraphNodeGetType(nodes[i], &type));
    types.push_back(type);
  }
  std::sort(types.begin(), types.end());
  const std::vector<int> expected = {
      cudaGraphNodeTypeMemcpy, cudaGraphNodeTypeMemset, cudaGraphNodeTypeHost};
  EXPECT(types == expected);
  OK(cudaGraphDestroy(graph));
  OK(cudaGraphDestroy(empty));
  std::puts("all is right");
}
