// What the calls of CUDA order between threads, for a program that a thread sanitizer watches. The
// first argument says what: each is in order. With RACES in its environment the call that orders it
// is not made.
#include "cuda.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t bytes = 100000;
bool races;
cudaStream_t stream, other, third;
void* device;
int value;

void add_one(void* to) {
  ++*static_cast<int*>(to);
}

void launch(cudaStream_t on) {
  OK(cudaLaunchHostFunc(on, add_one, &value));
}

// Functions are called in turn: a flag, which orders nothing, says that earlier ones have returned.
void let_it_return() {
  static std::atomic<int> has_returned{0};
  auto set = [](void*) { has_returned.store(1, std::memory_order_relaxed); };
  OK(cudaLaunchHostFunc(third, set, nullptr));
  while (!has_returned.load(std::memory_order_relaxed)) std::this_thread::yield();
}

// The thread that launches, the function, and who waits for it.
void synchronize() {
  value = 1;
  launch(stream);
  if (races) let_it_return();
  OK(cudaStreamSynchronize(races ? other : stream));
  value += 1;
}

void event() {
  cudaEvent_t done;
  OK(cudaEventCreate(&done));
  if (races) OK(cudaEventRecord(done, stream));
  launch(stream);
  if (!races) OK(cudaEventRecord(done, stream));
  OK(cudaEventSynchronize(done));
  value += 1;
  OK(cudaEventDestroy(done));
}

void query() {
  launch(stream);
  while (cudaStreamQuery(races ? other : stream) != cudaSuccess) std::this_thread::yield();
  value += 1;
}

// The function of one stream, an event, another stream, and who waits for that.
void two_streams() {
  cudaEvent_t done;
  OK(cudaEventCreate(&done));
  if (races) OK(cudaMemsetAsync(device, 1, bytes, other));
  launch(stream);
  OK(cudaEventRecord(done, stream));
  if (!races) OK(cudaStreamWaitEvent(other, done, 0));
  if (!races) OK(cudaMemsetAsync(device, 1, bytes, other));
  OK(cudaStreamSynchronize(other));
  value += 1;
  OK(cudaEventDestroy(done));
}

// A thread uploads and downloads; another one waits, and uses what is there.
void download() {
  std::vector<char> from(bytes, 7);
  void* to;
  OK(cudaMallocHost(&to, bytes));
  std::atomic<int> enqueued{0};
  std::thread reader([&] {
    while (!enqueued.load(std::memory_order_relaxed)) std::this_thread::yield();
    OK(cudaStreamSynchronize(stream));
    std::memset(to, 1, bytes);
  });
  OK(cudaMemcpyAsync(device, from.data(), bytes, cudaMemcpyHostToDevice, stream));
  OK(cudaMemcpyAsync(to, device, bytes, cudaMemcpyDeviceToHost, stream));
  enqueued.store(1, std::memory_order_relaxed);
  std::thread another([] {
    if (races) ++value;
  });
  if (races) ++value;
  another.join();
  reader.join();
  OK(cudaFreeHost(to));
}

// Threads that share nothing but the library.
void many() {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int round = 0; round < 20; ++round) {
        cudaStream_t own;
        OK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
        void *memory, *host;
        OK(cudaMalloc(&memory, bytes));
        OK(cudaMallocHost(&host, bytes));
        std::vector<char> source(bytes, 1);
        OK(cudaMemcpyAsync(memory, source.data(), bytes, cudaMemcpyHostToDevice, own));
        OK(cudaMemcpyAsync(host, memory, bytes, cudaMemcpyDeviceToHost, own));
        if (races) ++value;
        OK(cudaStreamSynchronize(own));
        OK(cudaFreeHost(host));
        OK(cudaFree(memory));
        OK(cudaStreamDestroy(own));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

struct Case {
  const char* name;
  void (*run)();
};

constexpr Case cases[] = {
    {"synchronize", synchronize},
    {"event", event},
    {"query", query},
    {"two_streams", two_streams},
    {"download", download},
    {"many", many},
};

} // namespace

int main(int, char** arguments) {
  races = std::getenv("RACES") != nullptr;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking));
  OK(cudaMalloc(&device, bytes));
  OK(cudaMemset(device, 3, bytes));
  // The thread that calls functions starts now, and not behind what a case has written.
  OK(cudaLaunchHostFunc(stream, [](void*) {}, nullptr));
  OK(cudaDeviceSynchronize());
  for (const Case& one : cases) {
    if (std::string(one.name) == arguments[1]) one.run();
  }
  OK(cudaDeviceSynchronize());
  OK(cudaFree(device));
  OK(cudaStreamDestroy(third));
  OK(cudaStreamDestroy(other));
  OK(cudaStreamDestroy(stream));
  std::puts("done");
}
