// A correct program: every mode and seed gives the same bytes and no finding.
#include "cuda.h"

#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr size_t bytes = 1 << 16;

void synchronous() {
  std::vector<char> there(bytes, 3), back(bytes, 0);
  void *a, *b;
  OK(cudaMalloc(&a, bytes));
  OK(cudaMalloc(&b, bytes));
  OK(cudaMemcpy(a, there.data(), bytes, cudaMemcpyHostToDevice));
  there.assign(bytes, 9);
  OK(cudaMemcpy(b, a, bytes, cudaMemcpyDeviceToDevice));
  OK(cudaMemset(static_cast<char*>(b) + 1, 5, 1));
  OK(cudaMemcpy(back.data(), b, bytes, cudaMemcpyDefault));
  EXPECT(back[0] == 3 && back[1] == 5 && back[bytes - 1] == 3);
  OK(cudaMemcpy(there.data(), back.data(), bytes, cudaMemcpyHostToHost));
  EXPECT(there == back);
  OK(cudaFree(a));
  OK(cudaFree(b));
  OK(cudaFree(nullptr));
}

void planes() {
  // Three lines of 5 bytes, 8 apart on the host and 16 apart on the device.
  std::vector<char> there(24), back(24, 0);
  for (size_t at = 0; at < there.size(); ++at) there[at] = static_cast<char>(at);
  void* a;
  OK(cudaMalloc(&a, 48));
  OK(cudaMemset2D(a, 16, 7, 16, 3));
  OK(cudaMemcpy2D(a, 16, there.data(), 8, 5, 3, cudaMemcpyHostToDevice));
  OK(cudaMemcpy2D(back.data(), 8, a, 16, 6, 3, cudaMemcpyDeviceToHost));
  for (size_t at = 0; at < back.size(); ++at) {
    const int expected = at % 8 < 5 ? there[at] : at % 8 == 5 ? 7 : 0;
    EXPECT(back[at] == expected);
  }
  EXPECT(cudaMemcpy2D(a, 4, there.data(), 8, 5, 3, cudaMemcpyHostToDevice) ==
         cudaErrorInvalidPitchValue);
  EXPECT(cudaGetLastError() == cudaErrorInvalidPitchValue);
  OK(cudaFree(a));
}

struct Seen {
  char* host;
  char value = 0;
  int calls = 0;
};

void asynchronous() {
  cudaStream_t first, second;
  cudaEvent_t event;
  char* host;
  void *a, *b;
  OK(cudaStreamCreate(&first));
  OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  OK(cudaEventCreate(&event));
  OK(cudaEventQuery(event));
  OK(cudaMallocHost(reinterpret_cast<void**>(&host), bytes));
  OK(cudaMallocAsync(&a, bytes, first));
  OK(cudaMemsetAsync(a, 4, bytes, first));
  OK(cudaEventRecord(event, first));
  OK(cudaStreamWaitEvent(second, event, 0));
  OK(cudaMemcpyAsync(host, a, bytes, cudaMemcpyDeviceToHost, second));
  Seen seen{host};
  auto look = [](void* data) {
    auto* seen = static_cast<Seen*>(data);
    seen->value = seen->host[bytes - 1];
    ++seen->calls;
  };
  OK(cudaLaunchHostFunc(second, look, &seen));
  auto again = [](cudaStream_t, cudaError_t status, void* data) {
    if (status == cudaSuccess) ++static_cast<Seen*>(data)->calls;
  };
  OK(cudaStreamAddCallback(second, again, &seen, 0));
  OK(cudaEventRecord(event, second));
  OK(cudaStreamWaitEvent(first, event, 0));
  OK(cudaFreeAsync(a, first));
  OK(cudaStreamSynchronize(second));
  EXPECT(seen.value == 4 && seen.calls == 2 && host[0] == 4);

  cudaMemPool_t pool;
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  OK(cudaMallocFromPoolAsync(&b, bytes, pool, first));
  OK(cudaMemcpyAsync(b, host, bytes, cudaMemcpyHostToDevice, first));
  while (cudaStreamQuery(first) == cudaErrorNotReady) (void)cudaGetLastError();
  EXPECT(cudaPeekAtLastError() == cudaSuccess);
  std::memset(host, 1, bytes);
  OK(cudaMemcpyAsync(host, b, bytes, cudaMemcpyDeviceToHost, first));
  OK(cudaDeviceSynchronize());
  EXPECT(host[7] == 4);

  cudaPointerAttributes of;
  OK(cudaPointerGetAttributes(&of, static_cast<char*>(b) + 9));
  EXPECT(of.type == cudaMemoryTypeDevice && of.device == 0);
  OK(cudaPointerGetAttributes(&of, host + 9));
  EXPECT(of.type == cudaMemoryTypeHost && of.hostPointer == host + 9);
  OK(cudaPointerGetAttributes(&of, &of));
  EXPECT(of.type == 0);

  OK(cudaFreeAsync(b, first));
  OK(cudaStreamSynchronize(first));
  OK(cudaFreeHost(host));
  OK(cudaEventDestroy(event));
  OK(cudaStreamDestroy(first));
  OK(cudaStreamDestroy(second));
}

void threads() {
  std::vector<std::thread> all;
  for (int thread = 0; thread < 4; ++thread) {
    all.emplace_back([thread] {
      std::vector<int> there(1000, thread), back(1000, -1);
      void* a;
      OK(cudaMalloc(&a, 4000));
      OK(cudaMemcpyAsync(a, there.data(), 4000, cudaMemcpyHostToDevice, cudaStreamPerThread));
      OK(cudaStreamSynchronize(cudaStreamPerThread));
      OK(cudaMemcpyAsync(back.data(), a, 4000, cudaMemcpyDeviceToHost, cudaStreamPerThread));
      OK(cudaStreamSynchronize(cudaStreamPerThread));
      EXPECT(there == back);
      OK(cudaFree(a));
    });
  }
  for (auto& thread : all) thread.join();
}

}  // namespace

int main() {
  synchronous();
  planes();
  asynchronous();
  threads();
  std::puts("all is right");
}
