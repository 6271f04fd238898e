// Shows how a lost device, or a runtime that unloads, still writes to the host's memory.
//
//   nvcc -O2 -std=c++17 -arch=native lost_device.cu -o lost_device && ./lost_device [DEVICES]
//
// CUDA does not document whether copies that were enqueued before an error continue after it. This
// program finds out: long copies to page-locked memory run on one stream while a kernel on another
// stream fails. Then it watches the memory. Each case runs in its own process. The results are
// printed as JSON.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr size_t bytes = size_t{256} << 20;
constexpr size_t page = 4096;
constexpr int copies = 400; // about two seconds

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

__global__ void fail(bool trap, long long cycles) {
  for (long long start = clock64(); clock64() - start < cycles;) {
  }
  if (trap) {
    __trap();
  } else {
    *reinterpret_cast<volatile int *>(16) = 1;
  }
}

cudaStream_t make_stream(int device) {
  cudaSetDevice(device);
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  return stream;
}

cudaEvent_t make_event(int device) {
  cudaSetDevice(device);
  cudaEvent_t event;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  return event;
}

// Copies to page-locked memory, enqueued on a stream of one device.
struct Copies {
  char *host;
  cudaStream_t stream;
  cudaEvent_t end;

  explicit Copies(int device) : stream(make_stream(device)), end(make_event(device)) {
    cudaHostAlloc(&host, bytes, cudaHostAllocPortable);
    std::memset(host, 0, bytes);
    char *sources[2];
    for (int value = 0; value < 2; ++value) {
      cudaMalloc(&sources[value], bytes);
      cudaMemset(sources[value], value + 1, bytes);
    }
    cudaStreamSynchronize(nullptr);
    for (int copy = 0; copy < copies; ++copy) {
      cudaMemcpyAsync(host, sources[copy % 2], bytes, cudaMemcpyDeviceToHost, stream);
    }
    cudaEventRecord(end, stream);
  }
};

// How long the memory continues to change, in milliseconds. The watch ends when nothing has changed
// for 300 ms.
double changes_for(const char *host) {
  std::vector<char> seen(bytes / page);
  const auto start = Clock::now();
  double last = 0;
  for (bool first = true; milliseconds_since(start) < last + 300; first = false) {
    for (size_t at = 0; at < bytes; at += page) {
      const char now = static_cast<const volatile char *>(host)[at];
      if (now != seen[at / page]) {
        seen[at / page] = now;
        last = first ? last : milliseconds_since(start);
      }
    }
  }
  return last;
}

void wait_for_loss(int device, cudaError_t &code) {
  cudaSetDevice(device);
  size_t free, total;
  const auto start = Clock::now();
  do {
    code = cudaMemGetInfo(&free, &total);
  } while (code == cudaSuccess && milliseconds_since(start) < 5000);
}

// A kernel fails on device `lost` while copies run on device `copying`.
void lose(int copying, int lost, bool trap) {
  cudaStream_t failing = make_stream(lost);
  // Launched before the copies, because loading a kernel may wait for them. It fails while they
  // run.
  fail<<<1, 1, 0, failing>>>(trap, 700'000'000);
  Copies work(copying);
  cudaError_t code;
  wait_for_loss(copying, code);
  const cudaError_t query = cudaEventQuery(work.end);
  const double went_on = changes_for(work.host);
  std::printf("  {\"case\": \"%s on device %d\", \"copies_on\": %d, \"its_memory_info\": \"%s\", "
              "\"query_of_the_copies\": \"%s\", \"memory_changed_for_ms\": %.0f, "
              "\"query_afterwards\": \"%s\"},\n",
              trap ? "trap" : "illegal address", lost, copying, cudaGetErrorName(code),
              cudaGetErrorName(query), went_on, cudaGetErrorName(cudaEventQuery(work.end)));
}

// A copy on device 0 waits for an event of device 1, after a kernel that fails.
void wait_for_lost_device() {
  cudaStream_t failing = make_stream(1);
  cudaEvent_t event = make_event(1);
  cudaStream_t waiting = make_stream(0);
  char *host, *source;
  cudaHostAlloc(&host, page, cudaHostAllocPortable);
  cudaMalloc(&source, page);
  cudaMemset(source, 7, page);
  cudaDeviceSynchronize();
  std::memset(host, 0, page);
  cudaSetDevice(1);
  fail<<<1, 1, 0, failing>>>(false, 200'000'000);
  cudaEventRecord(event, failing);
  cudaSetDevice(0);
  cudaStreamWaitEvent(waiting, event, 0);
  cudaMemcpyAsync(host, source, page, cudaMemcpyDeviceToHost, waiting);
  cudaError_t code;
  wait_for_loss(1, code);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  cudaSetDevice(0);
  std::printf("  {\"case\": \"device 0 waits for an event of device 1, which is lost\", "
              "\"query_on_device_0\": \"%s\", "
              "\"the_copy_ran_within_3_s\": %s},\n",
              cudaGetErrorName(cudaStreamQuery(waiting)), host[0] == 7 ? "true" : "false");
}

Copies *at_exit = nullptr;

// Registered before the runtime registers its own handler, so it is called after that one.
void after_unloading() {
  if (at_exit == nullptr) {
    return;
  }
  size_t free, total;
  const cudaError_t code = cudaMemGetInfo(&free, &total);
  const double went_on = changes_for(at_exit->host);
  std::printf("  {\"case\": \"exit with copies under way\", \"memory_info\": \"%s\", "
              "\"memory_changed_for_ms\": %.0f}\n",
              cudaGetErrorName(code), went_on);
  std::fflush(stdout);
}

__attribute__((constructor(101))) void register_handler() { std::atexit(after_unloading); }

void in_a_process(const std::function<void()> &work) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    work();
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) {
    std::printf("  {\"case\": \"a process ended with status %#x\"},\n", status);
  }
}

} // namespace

int main(int count, char **arguments) {
  const int devices = count > 1 ? std::atoi(arguments[1]) : 1;
  std::printf("[\n");
  for (bool trap : {false, true}) {
    in_a_process([=] { lose(0, 0, trap); });
    if (devices > 1) {
      in_a_process([=] { lose(0, 1, trap); });
    }
  }
  if (devices > 1) {
    in_a_process(wait_for_lost_device);
  }
  in_a_process([] {
    at_exit = new Copies(0);
    std::exit(0);
  });
  std::printf("]\n");
}
