// What a program does too early with the destination of a download, in pageable memory. The first
// argument says what; with WAITS in its environment the program does it in time.
#include "kernel.h"

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <numeric>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

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

// Loads of the program's own code.

volatile int sink;

void variable() {
  int count = 1;
  download(&count, sizeof count);
  sink = count;  // variable
  OK(cudaDeviceSynchronize());
}

void member() {
  struct {
    long before;
    float value;
    long after;
  } result = {};
  download(&result.value, sizeof result.value);
  if (result.value > 0) sink = 1;  // member
  OK(cudaDeviceSynchronize());
}

void on_the_heap() {
  std::vector<short> to(1, 1);
  download(to.data(), sizeof(short));
  sink = to[0];  // on_the_heap
  OK(cudaDeviceSynchronize());
}

void first() {
  std::vector<char> to(bytes, 1);
  download(to.data(), bytes);
  sink = to[0];  // first
  OK(cudaDeviceSynchronize());
}

void all() {
  std::vector<char> to(bytes, 1);
  download(to.data(), bytes);
  sink = std::accumulate(to.begin(), to.end(), 0);  // all
  OK(cudaDeviceSynchronize());
}

void copied() {
  std::vector<char> to(bytes, 1), copy(bytes, 1);
  download(to.data(), bytes);
  std::memcpy(copy.data(), to.data(), bytes);  // copied
  sink = copy[0];
  OK(cudaDeviceSynchronize());
}

void registered() {
  std::vector<int> to(bytes / sizeof(int), 1);
  OK(cudaHostRegister(to.data(), bytes, 0));
  download(to.data(), bytes);
  sink = to[0];  // registered
  OK(cudaDeviceSynchronize());
  OK(cudaHostUnregister(to.data()));
}

void lines() {
  std::vector<char> to(bytes, 1);
  OK(cudaMemcpy2DAsync(to.data(), 1000, device, 100, 100, 100, cudaMemcpyDeviceToHost, stream));
  if (waits) OK(cudaStreamSynchronize(stream));
  sink = to[0];  // lines
  OK(cudaDeviceSynchronize());
}

// The newest of several destinations.
void newest() {
  int counts[40] = {};
  for (int at = 0; at < 40; at += 4) {
    OK(cudaMemcpyAsync(&counts[at], device, sizeof(int), cudaMemcpyDeviceToHost, stream));
  }
  if (waits) OK(cudaStreamSynchronize(stream));
  sink = counts[36];  // newest
  OK(cudaDeviceSynchronize());
}

// Right without a wait: the variable that is used lies next to the destination.
void beside() {
  struct {
    char name[20] = "name";
    int count = 1;
    volatile int other = 2;
    char tail[64];
  } object;
  OK(cudaMemcpyAsync(&object.count, device, sizeof(int), cudaMemcpyDeviceToHost, stream));
  for (int time = 0; time < 1000; ++time) object.other = object.other + 1;
  object.name[19] = 'e';
  EXPECT(std::strlen(object.name) == 4 && std::memchr(object.name, 'e', 20) == object.name + 3);
#ifdef __SSE2__
  // As string functions and vectorized loops do.
  const char* at = reinterpret_cast<const char*>(&object.count);
  for (int before = 1; before < 16; ++before) {
    const __m128i wide = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at - before));
    sink = _mm_cvtsi128_si32(wide);
  }
#endif
  OK(cudaStreamSynchronize(stream));
  sink = object.count;
}

// Right: the program closes all files, and other files then have their numbers.
void files() {
  int count = 1;
  OK(cudaMemcpyAsync(&count, device, sizeof count, cudaMemcpyDeviceToHost, stream));
  for (int file = 3; file < 2000; ++file) close(file);
  const int own = memfd_create("own", 0);
  for (int file = 800; file < 1100; ++file) dup2(own, file);
  OK(cudaStreamSynchronize(stream));
  sink = count;
  for (int file = 800; file < 1024; ++file) EXPECT(fcntl(file, F_GETFD) == 0);
}

// Right: the child has its own memory.
void forked() {
  int count = 1;
  OK(cudaMemcpyAsync(&count, device, sizeof count, cudaMemcpyDeviceToHost, stream));
  const pid_t child = fork();
  if (child == 0) {
    sink = count;
    _exit(0);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  OK(cudaStreamSynchronize(stream));
}

// Right without a wait: the copy comes after the earlier work of its stream.
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
    {"variable", variable},
    {"member", member},
    {"on_the_heap", on_the_heap},
    {"first", first},
    {"all", all},
    {"copied", copied},
    {"registered", registered},
    {"lines", lines},
    {"newest", newest},
    {"beside", beside},
    {"files", files},
    {"forked", forked},
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
