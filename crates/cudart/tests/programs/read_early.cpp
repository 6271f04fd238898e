// What a program does too early with the destination of a download, in pageable memory. The first
// argument says what; with WAITS in its environment the program does it in time.
#include "kernel.h"

#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr std::size_t bytes = 100000, few = 100;
bool waits;
cudaStream_t stream;
void *device, *other;

void download(void* to, std::size_t length) {
  OK(cudaMemcpyAsync(to, device, length, cudaMemcpyDeviceToHost, stream));
  if (waits) OK(cudaStreamSynchronize(stream));
}

// By a synchronous copy, on another stream: a long one waits for that, a short one may not.
void upload(std::size_t length) {
  std::vector<char> to(length, 1);
  download(to.data(), length);
  OK(cudaMemcpy(other, to.data(), length, cudaMemcpyHostToDevice));
  OK(cudaDeviceSynchronize());
}

void long_upload() {
  upload(bytes);
}

void short_upload() {
  upload(few);
}

void copy_within_host() {
  std::vector<char> to(bytes, 1), copy(bytes, 1);
  download(to.data(), bytes);
  OK(cudaMemcpy(copy.data(), to.data(), bytes, cudaMemcpyHostToHost));
  OK(cudaDeviceSynchronize());
}

void copy_onto() {
  std::vector<char> to(bytes, 1), copy(bytes, 3);
  download(to.data(), bytes);
  OK(cudaMemcpy(to.data() + 5, copy.data(), 1, cudaMemcpyHostToHost));
  OK(cudaDeviceSynchronize());
}

void upload_lines() {
  std::vector<char> to(bytes, 1);
  download(to.data(), bytes);
  OK(cudaMemcpy2D(other, 10, to.data(), 1000, 10, 100, cudaMemcpyHostToDevice));
  OK(cudaDeviceSynchronize());
}

void batch_during_the_call() {
  std::vector<char> to(bytes, 1);
  download(to.data(), bytes);
  const void* from[] = {to.data()};
  cudaMemcpyAttributes attributes = {};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall;
  std::size_t first = 0;
  OK(cudaMemcpyBatchAsync(&other, from, &bytes, 1, &attributes, &first, 1, stream));
  OK(cudaDeviceSynchronize());
}

const Kernel kernel("_Z4takei"), unknown("_Z7unknowni");

void launch(const Kernel& what) {
  int count = 1;
  download(&count, sizeof count);
  OK(what.launch(stream, {&count}));
  OK(cudaDeviceSynchronize());
}

void argument() {
  launch(kernel);
}

void argument_of_an_unknown_kernel() {
  launch(unknown);
}

// Right, though nobody waits: the copy comes after what its stream does first.
void behind_in_the_stream() {
  for (std::size_t length : {few, bytes}) {
    std::vector<char> to(length, 1);
    OK(cudaMemcpyAsync(to.data(), device, length, cudaMemcpyDeviceToHost, cudaStreamLegacy));
    OK(cudaMemcpy(other, to.data(), length, cudaMemcpyHostToDevice));
    OK(cudaDeviceSynchronize());
  }
}

struct Case {
  const char* name;
  void (*run)();
};

constexpr Case cases[] = {
    {"long_upload", long_upload},
    {"short_upload", short_upload},
    {"copy_within_host", copy_within_host},
    {"copy_onto", copy_onto},
    {"upload_lines", upload_lines},
    {"batch_during_the_call", batch_during_the_call},
    {"argument", argument},
    {"argument_of_an_unknown_kernel", argument_of_an_unknown_kernel},
    {"behind_in_the_stream", behind_in_the_stream},
};

}  // namespace

extern "C" void pinlane_kernel_take(dim3, dim3, void**, size_t) {}

int main(int, char** arguments) {
  waits = std::getenv("WAITS") != nullptr;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  OK(cudaMalloc(&device, bytes));
  OK(cudaMalloc(&other, bytes));
  OK(cudaMemset(device, 3, bytes));
  OK(cudaDeviceSynchronize());
  for (const Case& one : cases) {
    if (std::string(one.name) == arguments[1]) one.run();
  }
  OK(cudaDeviceSynchronize());
  OK(cudaFree(other));
  OK(cudaFree(device));
  OK(cudaStreamDestroy(stream));
  std::puts("done");
}
