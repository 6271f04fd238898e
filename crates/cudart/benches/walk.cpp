// The operation of the drop-in whose walk scripts/walk counts: it runs until nothing is new to it,
// and then as often as the argument says inside `walked`, which valgrind watches.
#include <cstdlib>

#include "../tests/programs/cuda.h"

constexpr size_t BYTES = 1 << 18;
constexpr int WARM = 3;

static void* source;
static void* destination;
static cudaStream_t stream;

static void copy() {
  const auto to_device = cudaMemcpyHostToDevice;
  if (cudaMemcpyAsync(destination, source, BYTES, to_device, stream) != cudaSuccess) abort();
}

// What valgrind watches: only calls inside it count.
__attribute__((noinline)) static void walked() { copy(); }

int main(int, char** arguments) {
  if (cudaMallocHost(&source, BYTES) != cudaSuccess) abort();
  if (cudaMalloc(&destination, BYTES) != cudaSuccess) abort();
  if (cudaStreamCreate(&stream) != cudaSuccess) abort();
  for (int i = 0; i < WARM; ++i) {
    copy();
    cudaStreamSynchronize(stream);
  }
  for (int i = 0; i < atoi(arguments[1]); ++i) walked();
  return cudaStreamSynchronize(stream);
}
