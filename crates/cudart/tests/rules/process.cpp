// Rules 30 and 31: the life of the process.
#include "rules.h"

#include <cstring>

#include <sys/wait.h>
#include <unistd.h>

namespace {

// Older than the first call of CUDA: its destructor runs when the driver may have unloaded.
struct Late {
  void* memory = nullptr;
  ~Late() {
    if (memory == nullptr) return;
    const cudaError_t freed = cudaFree(memory);
    const cudaError_t again = cudaStreamSynchronize(nullptr);
    const bool unloaded = freed == cudaErrorCudartUnloading;
    if (!(unloaded ? again == cudaErrorCudartUnloading : freed == cudaSuccess)) _exit(1);
    const char* seen = unloaded ? "saw: unloading\n" : "saw: still there\n";
    if (write(1, seen, std::strlen(seen)) < 0) _exit(1);
  }
} late;

}  // namespace

RULE(rule_30_a_destructor_may_find_the_driver_unloaded, "unloading, still there", "") {
  late.memory = device_memory();
}

RULE(rule_31_a_forked_child_makes_no_call, "", "CallAfterFork") {
  char* a = device_memory();
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    int device = 0;
    void* memory = nullptr;
    const bool refused = cudaMalloc(&memory, BYTES) == cudaErrorInitializationError &&
                         cudaGetDevice(&device) != cudaErrorCudartUnloading;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  // The parent is as it was.
  OK(cudaMemset(a, 1, BYTES));
  EXPECT(device_value(a) == 1);
}

RULE(rule_31_without_a_device_every_call_says_so, "", "") {
  setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
  setenv("PINLANE_CUDART_DEVICES", "0", 1);
  int count = 0;
  void* memory;
  EXPECT(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  EXPECT(cudaMalloc(&memory, BYTES) == cudaErrorNoDevice);
  EXPECT(cudaGetLastError() == cudaErrorNoDevice);
}

RULE(rule_31_a_driver_that_is_too_old_leaves_outputs_alone, "", "") {
  setenv("PINLANE_CUDART_DRIVER", "0", 1);
  int count = 77, version = 77;
  void* memory = &count;
  // Beside NVIDIA's library, on a host without a driver.
  if (cudaGetDeviceCount(&count) == cudaSuccess) skip("there is a driver");
  EXPECT(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver && count == 77);
  EXPECT(cudaMalloc(&memory, BYTES) == cudaErrorInsufficientDriver && memory == &count);
  OK(cudaDriverGetVersion(&version));
  EXPECT(version == 0);
}
