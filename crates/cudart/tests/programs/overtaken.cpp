// Pageable memory is uploaded after the host function that fills it. With WAITS in its environment
// the program waits for the function. With HELD_UP the system holds the thread up before the
// upload, as where it reads a page of the program from a disk; with FOREVER, too, until the
// function has run. With BATCH the upload is a batch whose source is read in stream order, which is
// right; with EARLY, too, there is no function, and the program writes to that source after the
// call.
#include "cuda.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <vector>

namespace {

constexpr std::size_t bytes = 10000;

void fill(void* memory) {
  std::memset(memory, 2, bytes);
}

// The caller of vfork cannot be interrupted until the child ends.
void hold_up(const volatile unsigned char* source, bool forever) {
  if (vfork() == 0) {
    do usleep(20000);
    while (forever && *source != 2);
    _exit(0);
  }
}

} // namespace

int main() {
  const bool waits = std::getenv("WAITS"), batch = std::getenv("BATCH"),
             early = std::getenv("EARLY");
  cudaStream_t stream;
  void *device, *host;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  OK(cudaMalloc(&device, bytes));
  OK(cudaMallocHost(&host, bytes));
  std::vector<unsigned char> source(bytes, 1);
  if (early) fill(source.data());
  else OK(cudaLaunchHostFunc(stream, fill, source.data()));
  if (std::getenv("HELD_UP")) hold_up(source.data(), std::getenv("FOREVER"));
  if (waits) OK(cudaStreamSynchronize(stream));
  if (batch) {
    void* to[] = {device};
    const void* from[] = {source.data()};
    cudaMemcpyAttributes attributes = {};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;
    OK(cudaMemcpyBatchAsync(to, from, &bytes, 1, &attributes, &first, 1, stream));
    if (early) source.assign(bytes, 3);
  } else {
    OK(cudaMemcpyAsync(device, source.data(), bytes, cudaMemcpyHostToDevice, stream));
  }
  OK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  const unsigned char* arrived = static_cast<unsigned char*>(host);
  std::printf("%d %d\n", arrived[0], arrived[bytes - 1]);
  OK(cudaFreeHost(host));
  OK(cudaFree(device));
  OK(cudaStreamDestroy(stream));
}
