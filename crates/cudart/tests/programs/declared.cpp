// Kernels that are launched with what they use, in the ways that the argument names. With WAITS in
// the environment an event orders them, or the host waits.
#include "cuda.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "../../include/pinlane_dropin.h"

namespace {

constexpr size_t rows = 300, columns = 64, count = rows * columns, stride = columns * sizeof(float);
int dropped = 0, ran = 0, made = 0;

// Adds a number to some columns of a table.
struct Add {
  float *table, *storage;
  size_t first, width;
  float number;
  std::vector<int> only;  // These rows; all if there are none.
};

pinlane_use use_of(const float *table, size_t first, size_t width, int writes) {
  return {table + first, width * sizeof(float), rows, stride, writes};
}

void run(void *data) {
  const Add &add = *static_cast<Add *>(data);
  ++ran;
  for (size_t row = 0; row < rows; ++row) {
    if (!add.only.empty()) break;
    float *from = add.storage + row * columns + add.first;
    for (size_t at = 0; at < add.width; ++at) from[at] += add.number;
  }
  // Another thread works for it, and says what it has used.
  std::thread([&] {
    for (int row : add.only) {
      const size_t at = row * columns + add.first;
      for (size_t i = 0; i < add.width; ++i) add.storage[at + i] += add.number;
      const pinlane_use use = {add.table + at, add.width * sizeof(float), 1, 0, 1};
      pinlane_used(&use, 1);
    }
  }).join();
}

void drop(void *data) {
  delete static_cast<Add *>(data);
  ++dropped;
  // It may make calls.
  int device;
  OK(cudaGetDevice(&device));
}

Add *make(float *table, size_t first, size_t width, float number, std::vector<int> only = {}) {
  ++made;
  auto *storage = static_cast<float *>(pinlane_storage(table));
  return new Add{table, storage, first, width, number, std::move(only)};
}

// ANCHOR: shown
int add(const char *name, cudaStream_t stream, Add *what) {
  const pinlane_use uses[] = {use_of(what->table, what->first, what->width, 0),
                              use_of(what->table, what->first, what->width, 1)};
  return pinlane_launch(name, stream, uses, what->only.empty() ? 2 : 0, run, what, drop);
}
// ANCHOR_END: shown

cudaStream_t first, second;

void order() {
  cudaEvent_t event;
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  OK(cudaEventRecord(event, first));
  if (std::getenv("WAITS")) OK(cudaStreamWaitEvent(second, event, 0));
}

void is_all(const float *table, size_t from, size_t to, float value) {
  std::vector<float> back(count);
  OK(cudaMemcpy(back.data(), table, count * sizeof(float), cudaMemcpyDeviceToHost));
  for (size_t at = 0; at < count; ++at) {
    if (at % columns >= from && at % columns < to) EXPECT(back[at] == value);
  }
}

// Refused launches drop their data too.
void refused(float *table) {
  const int before = dropped;
  const pinlane_use endless = {table, 8, SIZE_MAX, 16, 0};
  EXPECT(pinlane_launch("endless", first, &endless, 1, run, make(table, 0, 1, 1), drop) == 1);
  EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
  EXPECT(pinlane_launch("no uses", first, nullptr, 1, run, make(table, 0, 1, 1), drop) == 1);
  EXPECT(pinlane_launch(nullptr, first, nullptr, 0, run, make(table, 0, 1, 1), drop) == 1);
  EXPECT(pinlane_launch("no work", first, nullptr, 0, nullptr, make(table, 0, 1, 1), drop) == 1);
  EXPECT(dropped == before + 4 && cudaGetLastError() == cudaErrorInvalidValue);
  static int calls = 0;
  const auto calls_cuda = [](void *) {
    ++calls;
    EXPECT(cudaStreamSynchronize(first) == cudaErrorNotPermitted);
    EXPECT(pinlane_launch("inner", first, nullptr, 0, run, nullptr, nullptr) == 800);
    EXPECT(pinlane_storage(&calls) == nullptr);
  };
  EXPECT(pinlane_launch("outer", nullptr, nullptr, 0, calls_cuda, nullptr, nullptr) == 0);
  OK(cudaDeviceSynchronize());
  EXPECT(calls == 1 && pinlane_launch("other", reinterpret_cast<cudaStream_t>(0x999), nullptr, 0,
                                      run, make(table, 0, 1, 1), drop) == 400);
  EXPECT(dropped == before + 5 && cudaGetLastError() == cudaErrorInvalidResourceHandle);
}

void graph(float *table) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  OK(cudaStreamBeginCapture(first, cudaStreamCaptureModeRelaxed));
  EXPECT(add("captured", first, make(table, 0, columns, 1)) == 0);
  OK(cudaStreamEndCapture(first, &graph));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  OK(cudaStreamSynchronize(first));
  const int before = dropped;
  for (int replay = 0; replay < 3; ++replay) OK(cudaGraphLaunch(exec, first));
  OK(cudaStreamSynchronize(first));
  EXPECT(dropped == before);
  OK(cudaGraphExecDestroy(exec));
  EXPECT(dropped == before + 1);
}

// At the end of the process: what never ran is dropped, once.
struct End {
  ~End() { std::printf("%d made, %d dropped, %s\n", made, dropped, ran ? "some ran" : "none ran"); }
} end;

}  // namespace

int main(int, char **argv) {
  const std::string how = argv[1];
  float *table, *host;
  OK(cudaMalloc(reinterpret_cast<void **>(&table), count * sizeof(float)));
  OK(cudaMallocHost(reinterpret_cast<void **>(&host), count * sizeof(float)));
  OK(cudaMemset(table, 0, count * sizeof(float)));
  OK(cudaDeviceSynchronize());
  std::memset(host, 0, count * sizeof(float));
  OK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  if (how == "right") {
    // Columns side by side: nothing needs to order these.
    EXPECT(add("left", first, make(table, 0, 20, 1)) == 0);
    EXPECT(add("right", second, make(table, 20, columns - 20, 1)) == 0);
    EXPECT(add("left", first, make(table, 0, 20, 1)) == 0);
    OK(cudaDeviceSynchronize());
    is_all(table, 0, 20, 2);
    is_all(table, 20, columns, 1);
    EXPECT(add("right", first, make(table, 20, columns - 20, 1)) == 0);
    graph(table);
    is_all(table, 0, columns, 5);
    refused(table);
    EXPECT(pinlane_storage(host) == host && pinlane_storage(nullptr) == nullptr);
    EXPECT(ran == 7);
  } else if (how == "columns") {
    EXPECT(add("left", first, make(table, 0, 20, 1)) == 0);
    order();
    EXPECT(add("right", second, make(table, 19, columns - 19, 1)) == 0);
  } else if (how == "rows") {
    EXPECT(add("all", first, make(table, 0, columns, 1)) == 0);
    order();
    EXPECT(add("some", second, make(table, 3, 1, 1, {7, 100})) == 0);
  } else if (how == "again") {
    // When "some" runs late, "all" has used the same rows again, in order.
    EXPECT(add("all", first, make(table, 0, columns, 1)) == 0);
    order();
    const pinlane_use later = {table, count * sizeof(float), 1, 0, 1 | PINLANE_LATER};
    Add *some = make(table, 3, 1, 1, {7, 100});
    EXPECT(pinlane_launch("some", second, &later, 1, run, some, drop) == 0);
    cudaEvent_t event;
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    OK(cudaEventRecord(event, second));
    OK(cudaStreamWaitEvent(first, event, 0));
    EXPECT(add("all", first, make(table, 0, columns, 1)) == 0);
  } else if (how == "others") {
    EXPECT(add("some", first, make(table, 0, columns, 1, {7, 100})) == 0);
    EXPECT(add("some", second, make(table, 0, columns, 1, {8, 101})) == 0);
  } else if (how == "host") {
    EXPECT(add("of the host", first, make(host, 2, 1, 1)) == 0);
    if (std::getenv("WAITS")) OK(cudaStreamSynchronize(first));
    host[0] += 1;
    host[columns * 9 + 2] += 1;
  } else if (how == "freed") {
    OK(cudaFree(table));
    add("too late", first, make(table, 0, 1, 1));
    EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress && ran == 0);
    return 0;
  } else if (how == "labels") {
    pinlane_label("zero_ float32[300, 64]");
    OK(cudaMemsetAsync(table, 0, 8, first));
    OK(cudaMemsetAsync(table + 2, 0, 4, first));
    pinlane_label(nullptr);
    OK(cudaMemsetAsync(table, 0, 4, second));
    pinlane_label("add_ float32[300, 64]");
    add("labelled", second, make(table, 2, 1, 1));
    pinlane_label(nullptr);
    pinlane_unsupported("aten::nothing has no CPU operator");
    pinlane_label("inner");
    pinlane_unsupported("another one");
    pinlane_label(nullptr);
  } else if (how == "never") {
    add("never", first, make(table, 0, columns, 1));
    return 0;
  }
  OK(cudaDeviceSynchronize());
}
