// What CUDA refuses or forbids, one case of it by the name in its argument.
#include "kernel.h"

#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

const Kernel store("_Z5storePci"), dump("_Z4dumpPcS_");
constexpr size_t bytes = 4096;

char* memory() {
  void* made;
  OK(cudaMalloc(&made, bytes));
  return static_cast<char*>(made);
}

char* pinned() {
  void* made;
  OK(cudaMallocHost(&made, bytes));
  return static_cast<char*>(made);
}

cudaStream_t stream() {
  cudaStream_t made;
  OK(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  return made;
}

cudaEvent_t marked(cudaStream_t stream) {
  cudaEvent_t event;
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  OK(cudaEventRecord(event, stream));
  return event;
}

void replay(cudaGraph_t graph, cudaStream_t on) {
  cudaGraphExec_t executable;
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(cudaGraphLaunch(executable, on));
  OK(cudaStreamSynchronize(on));
  OK(cudaGraphExecDestroy(executable));
}

// Asynchronous copies of pageable memory are captured; synchronous ones are not.
void captured() {
  std::vector<char> there(bytes, 1), back(bytes, 0);
  char* a = memory();
  cudaStream_t on = stream();
  cudaGraph_t graph;
  OK(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal));
  OK(cudaMemcpyAsync(a, there.data(), bytes, cudaMemcpyHostToDevice, on));
  OK(cudaMemcpyAsync(back.data(), a, bytes, cudaMemcpyDeviceToHost, on));
  OK(cudaStreamEndCapture(on, &graph));
  EXPECT(back[0] == 0);
  for (char value : {3, 4}) {
    std::memset(there.data(), value, bytes);
    replay(graph, on);
    EXPECT(back[0] == value && back[bytes - 1] == value);
  }
}

// A stream that was forked has to be joined, with all that it was given.
void unjoined() {
  char *a = memory(), *b = memory();
  cudaStream_t origin = stream(), other = stream();
  for (int joined = 0; joined < 3; ++joined) {
    cudaGraph_t graph = nullptr;
    OK(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal));
    OK(cudaMemsetAsync(a, 1, bytes, origin));
    OK(cudaStreamWaitEvent(other, marked(origin), 0));
    OK(cudaMemsetAsync(b, 1, bytes, other));
    if (joined > 0)
      OK(cudaStreamWaitEvent(origin, marked(other), 0));
    if (joined == 1)
      OK(cudaMemsetAsync(b, 2, bytes, other));
    const cudaError_t ended = cudaStreamEndCapture(origin, &graph);
    EXPECT(ended == (joined == 2 ? cudaSuccess : cudaErrorStreamCaptureUnjoined));
    EXPECT((graph != nullptr) == (joined == 2));
    OK(cudaStreamSynchronize(origin));
  }
}

struct Calls {
  char *host, *device;
  cudaStream_t stream;
  cudaEvent_t event;
  int refused;
};

// A host function makes no call.
void functions() {
  Calls calls{pinned(), memory(), stream(), nullptr, 0};
  calls.event = marked(calls.stream);
  const auto function = [](void* data) {
    auto& calls = *static_cast<Calls*>(data);
    const cudaError_t answers[] = {
        cudaDeviceSynchronize(),
        cudaStreamSynchronize(calls.stream),
        cudaEventSynchronize(calls.event),
        cudaDeviceReset(),
        cudaFree(calls.device),
        cudaMemcpy(calls.host, calls.device, bytes, cudaMemcpyDeviceToHost),
        cudaMemset(calls.device, 0, bytes),
        cudaStreamQuery(calls.stream),
        cudaEventQuery(calls.event),
        store.launch(calls.stream, {&calls.device, &calls.refused}),
    };
    for (cudaError_t answer : answers)
      calls.refused += answer == cudaErrorNotPermitted;
  };
  OK(cudaLaunchHostFunc(calls.stream, function, &calls));
  OK(cudaStreamSynchronize(calls.stream));
  std::printf("%d refused\n", calls.refused);
}

// A kernel is launched on a stream of the current device.
void elsewhere() {
  char* a = memory();
  cudaStream_t on = stream();
  int value = 1;
  OK(store.launch(on, {&a, &value}));
  OK(cudaSetDevice(1));
  EXPECT(store.launch(on, {&a, &value}) == cudaErrorInvalidResourceHandle);
  OK(cudaMemsetAsync(a, 2, bytes, on));
  OK(cudaStreamSynchronize(on));
}

// A kernel reaches memory of another device once access is enabled.
void peer() {
  int value = 1;
  OK(cudaSetDevice(1));
  char* there = memory();
  OK(cudaSetDevice(0));
  cudaStream_t on = stream();
  OK(cudaDeviceEnablePeerAccess(1, 0));
  OK(store.launch(on, {&there, &value}));
  OK(cudaStreamSynchronize(on));
  OK(cudaDeviceDisablePeerAccess(1));
  (void)store.launch(on, {&there, &value});
  EXPECT(cudaStreamSynchronize(on) == cudaErrorIllegalAddress);
  EXPECT(cudaMemset(there, 0, bytes) == cudaErrorIllegalAddress);
  OK(cudaSetDevice(1));
  OK(cudaMemset(there, 0, bytes));
}

// Lines are no longer than their pitch. Fills and copies were seen to have errors of their own.
void pitch() {
  char* a = memory();
  EXPECT(cudaMemset2D(a, 10, 1, 11, 2) == cudaErrorInvalidValue);
  EXPECT(cudaMemset2D(a, 0, 1, 11, 2) == cudaErrorInvalidValue);
  EXPECT(cudaMemcpy2D(a, 10, a + 2000, 20, 11, 2, cudaMemcpyDeviceToDevice) ==
         cudaErrorInvalidPitchValue);
  OK(cudaMemset2D(a, 11, 1, 11, 2));
  OK(cudaMemset2D(a, 0, 1, 0, 2));
}

// Page-locked memory stays until the kernels that use it are done.
void freed() {
  char* host = pinned();
  cudaStream_t on = stream();
  int value = 1;
  OK(store.launch(on, {&host, &value}));
  OK(cudaFreeHost(host));
  OK(cudaStreamSynchronize(on));
}

// A kernel that has an address and does not use it is no reason to wait.
void unused() {
  char* host = pinned();
  cudaStream_t on = stream();
  int value = 0;
  OK(store.launch(on, {&host, &value}));
  OK(cudaFreeHost(host));
  OK(cudaStreamSynchronize(on));
}

// The stand-in itself makes system calls, which is allowed.
void dumped() {
  char *a = memory(), *host = pinned();
  cudaStream_t on = stream();
  OK(cudaMemsetAsync(a, 1, bytes, on));
  std::memset(host, 1, bytes);
  OK(dump.launch(on, {&a, &host}));
  OK(cudaStreamSynchronize(on));
  EXPECT(host[0] == 0 && host[bytes - 1] == 0);
}

// Past the end of the memory.
void outside() {
  char* a = memory() + 1;
  cudaStream_t on = stream();
  int value = 1;
  (void)store.launch(on, {&a, &value});
  EXPECT(cudaStreamSynchronize(on) == cudaErrorIllegalAddress);
}

// As a garbage collector may do in a worker: it frees what the parent has.
void forked() {
  char* made = memory();
  const pid_t child = fork();
  if (child == 0) {
    int device = 0;
    const bool refused = cudaGetDevice(&device) == cudaErrorInitializationError &&
                         cudaFree(made) == cudaErrorInitializationError;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

} // namespace

// Gives the first bytes to the system, and takes zeros for the second ones.
extern "C" void pinlane_kernel_dump(dim3, dim3, void** args, size_t) {
  const int sink = open("/dev/null", O_WRONLY), source = open("/dev/zero", O_RDONLY);
  EXPECT(write(sink, *static_cast<char**>(args[0]), bytes) == static_cast<ssize_t>(bytes));
  EXPECT(read(source, *static_cast<char**>(args[1]), bytes) == static_cast<ssize_t>(bytes));
  close(sink);
  close(source);
}

// Stores the value to all bytes, unless it is 0.
extern "C" void pinlane_kernel_store(dim3, dim3, void** args, size_t) {
  const int value = *static_cast<int*>(args[1]);
  if (value != 0)
    std::memset(*static_cast<char**>(args[0]), value, bytes);
}

int main(int, char** argv) {
  const struct {
    const char* name;
    void (*run)();
  } cases[] = {{"captured", captured},   {"unjoined", unjoined}, {"functions", functions},
               {"elsewhere", elsewhere}, {"peer", peer},         {"pitch", pitch},
               {"freed", freed},         {"unused", unused},     {"dumped", dumped},
               {"outside", outside},     {"forked", forked}};
  for (const auto& one : cases) {
    if (std::string(argv[1]) == one.name)
      one.run();
  }
  std::puts("done");
}
