// A call that blocks while copies are given to a stream, and calls from odd places: a child that
// was forked, a thread that is cancelled, a stand-in for a kernel. The argument says which.
#include "cuda.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <pthread.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*,
                            void*, int*);
}

namespace {

constexpr size_t page = 4096, part = 100, apart = 2000;

char *host, *device;
cudaStream_t stream;
int sockets[2];
std::atomic<bool> is_held{false}, may_go_on{false};

// The page is closed until the program waits.
void close_page() {
  OK(cudaMemcpyAsync(device, host + apart, part, cudaMemcpyHostToDevice, stream));
}

// Waits until a thread of this process sleeps in a call.
void pause() {
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

void kernel() {}

void run_kernel(const char* name, cudaStream_t on) {
  static int binary;
  const auto* shadow = reinterpret_cast<const void*>(&kernel);
  __cudaRegisterFunction(__cudaRegisterFatBinary(&binary), static_cast<const char*>(shadow),
                         nullptr, name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  OK(cudaLaunchKernel(shadow, {1, 1, 1}, {1, 1, 1}, nullptr, 0, on));
  OK(cudaStreamSynchronize(on));
}

void say(char value) {
  char bytes[part];
  std::memset(bytes, value, part);
  EXPECT(send(sockets[0], bytes, part, 0) == ssize_t(part));
}

void blocked() {
  ssize_t got = 0;
  std::thread receiver([&] { got = recv(sockets[1], host, page, 0); });
  pause();
  close_page();
  say(7);
  receiver.join();
  EXPECT(got == ssize_t(part) && host[0] == 7 && host[part - 1] == 7);
  // The page is closed again after the call.
  if (std::getenv("LATE") != nullptr) host[apart] = 1;
}

pid_t receiving_child() {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(recv(sockets[1], host, page, 0) == ssize_t(part) && host[0] == 7 ? 0 : 1);
  }
  return child;
}

void ends_well(pid_t child) {
  int status = -1;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

void forked() {
  close_page();
  say(7);
  ends_well(receiving_child());
  // The machine is locked while a stand-in runs. A child that asks it waits for ever.
  say(7);
  std::thread holder([] {
    cudaStream_t other;
    OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    run_kernel("_Z4holdv", other);
    OK(cudaStreamDestroy(other));
  });
  while (!is_held) std::this_thread::yield();
  const pid_t child = receiving_child();
  may_go_on = true;
  holder.join();
  ends_well(child);
}

void* receive(void*) {
  recv(sockets[1], host, page, 0);
  return nullptr;
}

void cancelled() {
  close_page();
  pthread_t thread;
  void* result = nullptr;
  EXPECT(pthread_create(&thread, nullptr, receive, nullptr) == 0);
  pause();
  EXPECT(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
  EXPECT(result == PTHREAD_CANCELED);
  say(7);
  EXPECT(recv(sockets[1], host, page, 0) == ssize_t(part));
}

// Errors are those of the call.
void refused() {
  close_page();
  errno = 0;
  EXPECT(read(-1, host, page) == -1 && errno == EBADF);
  EXPECT(recv(sockets[1], host, page, MSG_DONTWAIT) == -1 && errno == EAGAIN);
  errno = 5;
  say(7);
  EXPECT(recv(sockets[1], host, page, 0) == ssize_t(part) && errno == 5);
}

void in_kernel() {
  std::memset(host, 7, page);
  close_page();
  run_kernel("_Z4sendv", stream);
  char bytes[part] = {};
  EXPECT(recv(sockets[1], bytes, part, 0) == ssize_t(part) && bytes[0] == 7);
}

}  // namespace

extern "C" void pinlane_kernel_send(dim3, dim3, void**, size_t) {
  EXPECT(send(sockets[0], host, part, 0) == ssize_t(part));
}

extern "C" void pinlane_kernel_hold(dim3, dim3, void**, size_t) {
  is_held = true;
  while (!may_go_on) std::this_thread::yield();
}

int main(int, char** arguments) {
  OK(cudaMallocHost(reinterpret_cast<void**>(&host), page));
  OK(cudaMalloc(reinterpret_cast<void**>(&device), page));
  OK(cudaStreamCreate(&stream));
  EXPECT(socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) == 0);
  const std::string which = arguments[1];
  if (which == "blocked") blocked();
  if (which == "forked") forked();
  if (which == "cancelled") cancelled();
  if (which == "refused") refused();
  if (which == "in_kernel") in_kernel();
  OK(cudaStreamSynchronize(stream));
  std::printf("%s is right\n", which.c_str());
}
