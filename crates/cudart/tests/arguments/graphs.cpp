// Graphs.
#include "questions.h"

namespace {

void CUDART_CB nothing(void *) {}

// A graph of nothing, in `w.graph`.
cudaGraph_t empty(World &w) {
  cudaGraphCreate(&w.graph, 0);
  return w.graph;
}

// A graph of a copy, captured.
cudaGraph_t copy(World &w) {
  cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
  cudaMemcpyAsync(w.device, w.host, BYTES, cudaMemcpyHostToDevice, w.stream);
  cudaStreamEndCapture(w.stream, &w.graph);
  return w.graph;
}

cudaGraphExec_t ready(World &w, cudaGraph_t graph) {
  w.exec = nullptr;
  cudaGraphInstantiate(&w.exec, graph, 0);
  return w.exec;
}

cudaGraphNode_t node(World &w) {
  cudaGraphNode_t node = nullptr;
  cudaGraphAddEmptyNode(&node, empty(w), nullptr, 0);
  return node;
}

long add_fill(World &w, void *memory, unsigned element, size_t width) {
  cudaMemsetParams fill{};
  fill.dst = memory;
  fill.elementSize = element;
  fill.width = width;
  fill.height = 1;
  cudaGraphNode_t node = nullptr;
  return cudaGraphAddMemsetNode(&node, empty(w), nullptr, 0, &fill);
}

long add_copy(World &w, void *to, const void *from, size_t bytes, int kind) {
  cudaGraphNode_t node = nullptr;
  return cudaGraphAddMemcpyNode1D(&node, empty(w), nullptr, 0, to, from, bytes,
                                  static_cast<cudaMemcpyKind>(kind));
}

long add_call(World &w, cudaHostFn_t function) {
  cudaHostNodeParams call{};
  call.fn = function;
  cudaGraphNode_t node = nullptr;
  return cudaGraphAddHostNode(&node, empty(w), nullptr, 0, &call);
}

Questions whole() {
  return {
    ASK("cudaGraphCreate NULL", cudaGraphCreate(nullptr, 0)),
        ASK("cudaGraphCreate", cudaGraphCreate(&w.graph, 0)),
        ASK("cudaGraphCreate flags 1", cudaGraphCreate(&w.graph, 1)),
        ASK("cudaGraphDestroy NULL", cudaGraphDestroy(nullptr)),
        STEPS("cudaGraphDestroy", copy(w); return cudaGraphDestroy(w.graph);),
        STEPS("cudaGraphDestroy twice", copy(w); cudaGraphDestroy(w.graph);
              return cudaGraphDestroy(w.graph);),
        STEPS("cudaGraphInstantiate NULL out", return cudaGraphInstantiate(nullptr, copy(w), 0);),
        ASK("cudaGraphInstantiate NULL", cudaGraphInstantiate(&w.exec, nullptr, 0)),
        ASK("cudaGraphInstantiate of nothing", cudaGraphInstantiate(&w.exec, empty(w), 0)),
        ASK("cudaGraphInstantiate flags 0x80", cudaGraphInstantiate(&w.exec, copy(w), 0x80)),
        ASK("cudaGraphInstantiate flags 5", cudaGraphInstantiate(&w.exec, copy(w), 5)),
        ASK("cudaGraphInstantiate flags 1", cudaGraphInstantiate(&w.exec, copy(w), 1)),
        ASK("cudaGraphInstantiate flags 2", cudaGraphInstantiate(&w.exec, copy(w), 2)),
        ASK("cudaGraphInstantiate flags 8", cudaGraphInstantiate(&w.exec, copy(w), 8)),
        STEPS("cudaGraphInstantiate destroyed", copy(w); cudaGraphDestroy(w.graph);
              return cudaGraphInstantiate(&w.exec, w.graph, 0);),
        ASK("cudaGraphLaunch NULL", cudaGraphLaunch(nullptr, w.stream)),
        ASK("cudaGraphLaunch", cudaGraphLaunch(ready(w, copy(w)), w.stream)),
        ASK("cudaGraphLaunch of nothing", cudaGraphLaunch(ready(w, empty(w)), w.stream)),
        STEPS("cudaGraphLaunch twice", ready(w, copy(w)); cudaGraphLaunch(w.exec, w.stream);
              return cudaGraphLaunch(w.exec, w.stream);),
        ASK("cudaGraphLaunch default stream", cudaGraphLaunch(ready(w, copy(w)), nullptr)),
        ASK("cudaGraphLaunch legacy stream", cudaGraphLaunch(ready(w, copy(w)), cudaStreamLegacy)),
        ASK("cudaGraphLaunch destroyed stream", cudaGraphLaunch(ready(w, copy(w)), w.destroyed)),
        STEPS("cudaGraphLaunch destroyed", ready(w, copy(w)); cudaGraphExecDestroy(w.exec);
              return cudaGraphLaunch(w.exec, w.stream);),
        STEPS("cudaGraphLaunch, its graph destroyed", ready(w, copy(w)); cudaGraphDestroy(w.graph);
              return cudaGraphLaunch(w.exec, w.stream);),
        STEPS("cudaGraphExecDestroy", return cudaGraphExecDestroy(ready(w, copy(w)));),
        STEPS("cudaGraphExecDestroy twice", ready(w, copy(w)); cudaGraphExecDestroy(w.exec);
              return cudaGraphExecDestroy(w.exec);),
        ASK("cudaGraphExecDestroy NULL", cudaGraphExecDestroy(nullptr)),
        ASK("cudaGraphUpload", cudaGraphUpload(ready(w, copy(w)), w.stream)),
        ASK("cudaGraphUpload NULL", cudaGraphUpload(nullptr, w.stream)),
        STEPS("cudaGraphClone", cudaGraph_t clone; return cudaGraphClone(&clone, copy(w));),
        STEPS("cudaGraphClone NULL", cudaGraph_t clone; return cudaGraphClone(&clone, nullptr);),
        ASK("cudaGraphClone NULL out", cudaGraphClone(nullptr, copy(w))),
        STEPS("cudaGraphExecUpdate NULL", cudaGraphExecUpdateResultInfo info{};
              return cudaGraphExecUpdate(nullptr, nullptr, &info);),
  };
}

Questions nodes() {
  return {
    STEPS("cudaGraphAddEmptyNode", cudaGraphNode_t node;
          return cudaGraphAddEmptyNode(&node, empty(w), nullptr, 0);),
        ASK("cudaGraphAddEmptyNode NULL out", cudaGraphAddEmptyNode(nullptr, empty(w), nullptr, 0)),
        STEPS("cudaGraphAddEmptyNode NULL graph", cudaGraphNode_t node;
              return cudaGraphAddEmptyNode(&node, nullptr, nullptr, 0);),
        STEPS("cudaGraphAddEmptyNode NULL dependencies", cudaGraphNode_t node;
              return cudaGraphAddEmptyNode(&node, empty(w), nullptr, 1);),
        ASK("cudaGraphAddHostNode", add_call(w, nothing)),
        ASK("cudaGraphAddHostNode NULL function", add_call(w, nullptr)),
        STEPS("cudaGraphAddHostNode NULL", cudaGraphNode_t node;
              return cudaGraphAddHostNode(&node, empty(w), nullptr, 0, nullptr);),
        ASK("cudaGraphAddMemcpyNode1D up", add_copy(w, w.device, w.host, BYTES, 1)),
        ASK("cudaGraphAddMemcpyNode1D down as up", add_copy(w, w.host, w.device, BYTES, 1)),
        ASK("cudaGraphAddMemcpyNode1D kind 9", add_copy(w, w.device, w.host, BYTES, 9)),
        ASK("cudaGraphAddMemcpyNode1D NULL", add_copy(w, w.device, nullptr, BYTES, 1)),
        ASK("cudaGraphAddMemcpyNode1D 0 bytes", add_copy(w, w.device, w.host, 0, 1)),
        ASK("cudaGraphAddMemcpyNode1D pageable", add_copy(w, w.device, w.pageable, BYTES, 1)),
        ASK("cudaGraphAddMemcpyNode1D freed device", add_copy(w, w.freed_device, w.host, BYTES, 1)),
        ASK("cudaGraphAddMemsetNode", add_fill(w, w.device, 1, 64)),
        ASK("cudaGraphAddMemsetNode elements of 3", add_fill(w, w.device, 3, 64)),
        ASK("cudaGraphAddMemsetNode NULL memory", add_fill(w, nullptr, 1, 64)),
        ASK("cudaGraphAddMemsetNode host", add_fill(w, w.host, 1, 64)),
        ASK("cudaGraphAddMemsetNode pageable", add_fill(w, w.pageable, 1, 64)),
        ASK("cudaGraphAddMemsetNode no width", add_fill(w, w.device, 1, 0)),
        STEPS("cudaGraphAddEventRecordNode", cudaGraphNode_t node;
              return cudaGraphAddEventRecordNode(&node, empty(w), nullptr, 0, w.event);),
        STEPS("cudaGraphAddEventRecordNode NULL", cudaGraphNode_t node;
              return cudaGraphAddEventRecordNode(&node, empty(w), nullptr, 0, nullptr);),
        STEPS("cudaGraphAddEventWaitNode", cudaGraphNode_t node;
              return cudaGraphAddEventWaitNode(&node, empty(w), nullptr, 0, w.event);),
        STEPS("cudaGraphAddEventWaitNode NULL", cudaGraphNode_t node;
              return cudaGraphAddEventWaitNode(&node, empty(w), nullptr, 0, nullptr);),
        STEPS("cudaGraphAddChildGraphNode NULL", cudaGraphNode_t node;
              return cudaGraphAddChildGraphNode(&node, empty(w), nullptr, 0, nullptr);),
        STEPS("cudaGraphGetNodes of a captured copy",
              const long answer = cudaGraphGetNodes(copy(w), nullptr, &w.size);
              return both(answer, 100, w.size);),
        ASK("cudaGraphGetNodes NULL", cudaGraphGetNodes(nullptr, nullptr, &w.size)),
        ASK("cudaGraphGetNodes NULL count", cudaGraphGetNodes(copy(w), nullptr, nullptr)),
        STEPS("cudaGraphGetRootNodes of a captured copy",
              const long answer = cudaGraphGetRootNodes(copy(w), nullptr, &w.size);
              return both(answer, 100, w.size);),
        STEPS("cudaGraphNodeGetType of an empty node", cudaGraphNodeType type{};
              const long answer = cudaGraphNodeGetType(node(w), &type);
              return both(answer, 100, type);),
        STEPS("cudaGraphNodeGetType NULL", cudaGraphNodeType type{};
              return cudaGraphNodeGetType(nullptr, &type);),
        ASK("cudaGraphDestroyNode", cudaGraphDestroyNode(node(w))),
        ASK("cudaGraphDestroyNode NULL", cudaGraphDestroyNode(nullptr)),
  };
}

} // namespace

Questions graphs() {
  Questions all = whole();
  const Questions more = nodes();
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
