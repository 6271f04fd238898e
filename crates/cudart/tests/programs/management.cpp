// Asks NVML for the devices before it uses CUDA, and finds the same ones by what the runtime says.
#include "cuda.h"

#include <cstring>
#include <dlfcn.h>

namespace {
void* library;

template <class... Arguments>
int call(const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
  if (function) return function(arguments...);
  std::printf("%s is absent\n", name);
  std::exit(1);
}

void right(bool is_right, int line) {
  if (is_right) return;
  std::printf("line %d is wrong\n", line);
  std::exit(1);
}
#define RIGHT(what) right(what, __LINE__)
}  // namespace

int main() {
  library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  RIGHT(library);
  RIGHT(call("nvmlInit_v2") == 0);
  unsigned count = 99;
  RIGHT(call("nvmlDeviceGetCount_v2", &count) == 0);
  void* device = nullptr;
  for (unsigned index = 0; index < count; ++index) {
    char id[32], uuid[80], expected[8];
    OK(cudaDeviceGetPCIBusId(id, sizeof id, int(index)));
    RIGHT(call("nvmlDeviceGetHandleByPciBusId_v2", static_cast<const char*>(id), &device) == 0);
    unsigned found = 99;
    RIGHT(call("nvmlDeviceGetIndex", device, &found) == 0 && found == index);
    RIGHT(call("nvmlDeviceGetUUID", device, uuid, unsigned(sizeof uuid)) == 0);
    std::snprintf(expected, sizeof expected, "GPU-%02x", index + 1);
    RIGHT(std::strlen(uuid) == 40 && std::strncmp(uuid, expected, 6) == 0);
    void* same = nullptr;
    RIGHT(call("nvmlDeviceGetHandleByUUID", static_cast<const char*>(uuid), &same) == 0);
    RIGHT(same == device);
    RIGHT(call("nvmlDeviceGetUUID", device, uuid, 10u) == 7);
    unsigned processes = 5;
    RIGHT(call("nvmlDeviceGetComputeRunningProcesses", device, &processes, nullptr) == 0);
    RIGHT(processes == 0);
  }
  RIGHT(call("nvmlDeviceGetHandleByIndex_v2", count, &device) == 2);
  RIGHT(call("nvmlDeviceGetHandleByPciBusId_v2", "0000:77:00.0", &device) == 6);
  RIGHT(call("nvmlShutdown") == 0);
  std::printf("%u devices\n", count);
}
