// Two processes and device memory of one of them; the answers are a GPU's (an H100, driver
// 580.159.04).
#include "cuda.h"

#include <sys/wait.h>
#include <unistd.h>

#ifndef WITH_TOOLKIT
struct cudaIpcMemHandle_t {
  char reserved[64];
};
enum { cudaErrorDeviceUninitialized = 201, cudaIpcMemLazyEnablePeerAccess = 1 };
struct cudaIpcEventHandle_t {
  char reserved[64];
};
extern "C" {
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*);
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned);
cudaError_t cudaIpcCloseMemHandle(void*);
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t);
}
#endif

namespace {

constexpr size_t BYTES = 100000;

char byte_of(const void* memory, size_t at) {
  char byte = 0;
  OK(cudaMemcpy(&byte, static_cast<const char*>(memory) + at, 1, cudaMemcpyDeviceToHost));
  return byte;
}

#define INVALID(call) EXPECT((call) == cudaErrorInvalidValue)

// Reads the handle from its standard input.
int other() {
  cudaIpcMemHandle_t handle, again;
  EXPECT(read(0, &handle, sizeof handle) == sizeof handle);
  void *memory = nullptr, *same = nullptr;
  INVALID(cudaIpcOpenMemHandle(&memory, handle, 0));
  INVALID(cudaIpcOpenMemHandle(&memory, handle, 2));
  OK(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
  OK(cudaIpcOpenMemHandle(&same, handle, cudaIpcMemLazyEnablePeerAccess));
  EXPECT(memory == same);
  cudaPointerAttributes about;
  OK(cudaPointerGetAttributes(&about, memory));
  EXPECT(about.type == cudaMemoryTypeDevice && about.device == 0);
  EXPECT(byte_of(memory, 0) == 77 && byte_of(memory, BYTES - 1) == 77);
  OK(cudaMemset(memory, 78, BYTES / 2));
  void* own;
  OK(cudaMalloc(&own, BYTES));
  OK(cudaMemset(own, 1, BYTES));
  EXPECT(byte_of(memory, 0) == 78 && byte_of(memory, BYTES - 1) == 77);
  INVALID(cudaIpcGetMemHandle(&again, memory));
  INVALID(cudaIpcCloseMemHandle(static_cast<char*>(memory) + 1));
  OK(cudaIpcCloseMemHandle(memory));
  EXPECT(byte_of(memory, 0) == 78);
  OK(cudaIpcCloseMemHandle(memory));
  INVALID(cudaIpcCloseMemHandle(memory));
  EXPECT(byte_of(own, BYTES - 1) == 1);
  OK(cudaFree(own));
  OK(cudaDeviceSynchronize());
  return 0;
}

}  // namespace

int main(int argc, char**) {
  if (argc > 1) return other();
  // Before the first call: a forked child cannot use what its parent has.
  int ends[2];
  EXPECT(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[0], 0);
    execl("/proc/self/exe", "ipc", "other", nullptr);
    _exit(9);
  }
  void *ahead, *memory, *pinned;
  OK(cudaMalloc(&ahead, 300));
  OK(cudaMalloc(&memory, BYTES));
  OK(cudaMemset(memory, 77, BYTES));
  OK(cudaDeviceSynchronize());
  OK(cudaMallocHost(&pinned, 100));
  cudaIpcMemHandle_t handle = {}, inside;
  char pageable;
  void* opened;
  INVALID(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess));
  OK(cudaIpcGetMemHandle(&handle, memory));
  OK(cudaIpcGetMemHandle(&inside, static_cast<char*>(memory) + 4096));
  INVALID(cudaIpcGetMemHandle(nullptr, memory));
  INVALID(cudaIpcGetMemHandle(&inside, nullptr));
  INVALID(cudaIpcGetMemHandle(&inside, &pageable));
  INVALID(cudaIpcGetMemHandle(&inside, pinned));
  EXPECT(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess) ==
         cudaErrorDeviceUninitialized);
  INVALID(cudaIpcCloseMemHandle(memory));
  EXPECT(write(ends[1], &handle, sizeof handle) == sizeof handle);
  int status = -1;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  EXPECT(byte_of(memory, 0) == 78 && byte_of(memory, BYTES - 1) == 77);
  OK(cudaFreeHost(pinned));
  OK(cudaFree(memory));
  OK(cudaFree(ahead));
  cudaIpcEventHandle_t shared;
  cudaEvent_t plain;
  OK(cudaEventCreateWithFlags(&plain, cudaEventDisableTiming));
  EXPECT(cudaIpcGetEventHandle(&shared, plain) == cudaErrorInvalidResourceHandle);
#ifndef WITH_TOOLKIT
  cudaEvent_t event;
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  OK(cudaEventRecord(event, nullptr));
  OK(cudaEventSynchronize(event));
  EXPECT(cudaIpcGetEventHandle(&shared, event) == cudaErrorNotSupported);
  OK(cudaEventDestroy(event));
#endif
  OK(cudaEventDestroy(plain));
  std::puts("all is right");
}
