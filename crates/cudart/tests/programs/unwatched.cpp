// Too early accesses of a program to pageable and registered memory, whose pages cannot be closed.
// The first argument says what; with WAITS in its environment the program does it in time.
#include "cuda.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t bytes = 10000;
bool waits;
cudaStream_t stream, other;
void* device;

void upload(const void* from) {
  OK(cudaMemcpyAsync(device, from, bytes, cudaMemcpyHostToDevice, stream));
}

void download(void* to) {
  OK(cudaMemcpyAsync(to, device, bytes, cudaMemcpyDeviceToHost, stream));
}

void wait() {
  if (waits) OK(cudaStreamSynchronize(stream));
}

// Memory of malloc for the length of a test.
struct Registered {
  std::vector<char> memory = std::vector<char>(bytes, 1);
  char* data = memory.data();
  Registered() {
    OK(cudaHostRegister(data, bytes, 0));
  }
  ~Registered() {
    OK(cudaDeviceSynchronize());
    OK(cudaHostUnregister(data));
  }
};

void source() {
  std::vector<char> from(bytes, 1);
  upload(from.data());
  wait();
  from.assign(bytes, 2);
  OK(cudaDeviceSynchronize());
}

void registered_source() {
  Registered from;
  upload(from.data);
  wait();
  from.data[bytes - 1] = 2;
}

void registered_destination() {
  Registered to;
  download(to.data);
  wait();
  to.data[0] = to.data[0] + 1;
}

void destination() {
  std::vector<char> to(bytes, 1);
  download(to.data());
  wait();
  to[7] = static_cast<char>(to[7] + 1);
  OK(cudaDeviceSynchronize());
}

// The allocator writes into what is freed.
void freed() {
  std::vector<char>* from = new std::vector<char>(400, 1);
  OK(cudaMemcpyAsync(device, from->data(), 400, cudaMemcpyHostToDevice, stream));
  wait();
  delete from;
  OK(cudaDeviceSynchronize());
}

// Between two copies of one stream into the same memory.
void between() {
  Registered to;
  download(to.data);
  wait();
  to.data[0] = to.data[0] + 1;
  download(to.data);
  OK(cudaStreamSynchronize(stream));
}

// Only one of the two uploads from the same memory has been waited for.
void one_of_two() {
  Registered from;
  void* second;
  OK(cudaMalloc(&second, bytes));
  cudaEvent_t event;
  OK(cudaEventCreate(&event));
  upload(from.data);
  OK(cudaEventRecord(event, stream));
  OK(cudaMemcpyAsync(second, from.data, bytes, cudaMemcpyHostToDevice, other));
  if (waits) OK(cudaStreamSynchronize(other));
  OK(cudaEventSynchronize(event));
  from.data[5] = 2;
  OK(cudaDeviceSynchronize());
  OK(cudaEventDestroy(event));
  OK(cudaFree(second));
}

void fill(void* memory) {
  std::memset(memory, 2, bytes);
}

// In time, the function comes after the copy in its stream; otherwise it is on another stream.
void host_function() {
  Registered from;
  upload(from.data);
  OK(cudaLaunchHostFunc(waits ? stream : other, fill, from.data));
  OK(cudaStreamSynchronize(other));
  OK(cudaStreamSynchronize(stream));
}

// The same, after an event.
void host_function_of_another_stream() {
  Registered from;
  cudaEvent_t event;
  OK(cudaEventCreate(&event));
  upload(from.data);
  OK(cudaEventRecord(event, stream));
  if (waits) OK(cudaStreamWaitEvent(other, event, 0));
  OK(cudaLaunchHostFunc(other, fill, from.data));
  OK(cudaStreamSynchronize(other));
  OK(cudaStreamSynchronize(stream));
  OK(cudaEventDestroy(event));
}

void raise(void* flag) {
  static_cast<std::atomic<bool>*>(flag)->store(true);
}

// A flag signals a thread. In time, the flag is raised after the copy; otherwise too early.
void flag() {
  std::vector<char> from(bytes, 1);
  std::atomic<bool> done{false};
  upload(from.data());
  OK(cudaLaunchHostFunc(waits ? stream : other, raise, &done));
  std::thread([&] {
    while (!done) std::this_thread::yield();
    fill(from.data());
  }).join();
  OK(cudaDeviceSynchronize());
}

// A program that queries until the copy is complete.
void query() {
  std::vector<char> from(bytes, 1);
  upload(from.data());
  while (waits && cudaStreamQuery(stream) != cudaSuccess) {}
  from[0] = 2;
  OK(cudaDeviceSynchronize());
}

struct Case {
  const char* name;
  void (*run)();
};

constexpr Case cases[] = {
    {"source", source},
    {"registered_source", registered_source},
    {"registered_destination", registered_destination},
    {"destination", destination},
    {"freed", freed},
    {"between", between},
    {"one_of_two", one_of_two},
    {"host_function", host_function},
    {"host_function_of_another_stream", host_function_of_another_stream},
    {"flag", flag},
    {"query", query},
};

} // namespace

int main(int, char** arguments) {
  waits = std::getenv("WAITS") != nullptr;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  OK(cudaMalloc(&device, bytes));
  OK(cudaMemset(device, 3, bytes));
  OK(cudaDeviceSynchronize());
  for (const Case& one : cases) {
    if (std::string(one.name) == arguments[1]) one.run();
  }
  OK(cudaDeviceSynchronize());
  OK(cudaFree(device));
  OK(cudaStreamDestroy(other));
  OK(cudaStreamDestroy(stream));
  std::puts("done");
}
