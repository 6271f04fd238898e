// What a program does under `ulimit -v` or `ulimit -f`: limited MiB RESOURCE.
#include "cuda.h"

#include <sys/resource.h>

#include <cstring>
#include <vector>

int main(int, char** argv) {
  const bool of_files = std::strncmp(argv[1], "files:", 6) == 0;
  rlimit limit = {};
  limit.rlim_cur = limit.rlim_max = std::atol(argv[1] + (of_files ? 6 : 0)) * 1024 * 1024;
  EXPECT(setrlimit(of_files ? RLIMIT_FSIZE : RLIMIT_AS, &limit) == 0);
  void* first;
  if (const cudaError_t error = cudaMalloc(&first, 1000)) {
    std::printf("no device: %d\n", static_cast<int>(error));
    return 0;
  }
  // More than all addresses together.
  const size_t bytes = 16 << 20;
  std::vector<char> host(1000);
  for (int round = 1; round <= 36; ++round) {
    void* device;
    OK(cudaMalloc(&device, bytes));
    OK(cudaMemset(device, round, 1000));
    OK(cudaMemcpy(host.data(), device, host.size(), cudaMemcpyDeviceToHost));
    EXPECT(host[0] == static_cast<char>(round) && host[999] == static_cast<char>(round));
    OK(cudaFree(device));
  }
  OK(cudaFree(first));
  std::puts("all is right");
}
