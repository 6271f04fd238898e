// Runs the tests of the rules.
//
//   rules --list     names, choices and findings, separated by tabs
//   rules NAME       one test, in this process
//   rules            all of them, each in a process of its own; the exit status is 1 if one failed
#include "rules.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

using namespace std::chrono_literals;

namespace {

std::vector<Rule>& rules() {
  static std::vector<Rule> all;
  return all;
}

const Rule* current = nullptr;

bool declares(const char* choices, const std::string& choice) {
  const std::string padded = std::string(", ") + choices + ",";
  const auto has = [&](const std::string& end) {
    return padded.find(", " + choice + end) != std::string::npos;
  };
  return has(",") || has("?,");
}

int run(const Rule& rule) {
  current = &rule;
  rule.run();
  std::puts("done");
  return 0;
}

// A fresh process for each: some tests lose the device, or end the runtime.
int run_all(const char* program) {
  int failed = 0, passed = 0;
  for (const Rule& rule : rules()) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      execl(program, program, rule.name, static_cast<char*>(nullptr));
      _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    const bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    (good ? passed : failed) += 1;
    std::printf("%s %s\n", good ? "ok    " : "FAILED", rule.name);
  }
  std::printf("test result: %s. %d passed; %d failed\n", failed == 0 ? "ok" : "FAILED", passed,
              failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace

Registered::Registered(const Rule& rule) { rules().push_back(rule); }

void saw(const char* choice) {
  if (!declares(current->choices, choice)) {
    std::printf("%s: saw \"%s\", which the rule does not allow\n", current->name, choice);
    std::exit(1);
  }
  std::printf("saw: %s\n", choice);
}

void skip(const char* reason) {
  std::printf("skipped: %s\n", reason);
  std::exit(0);
}

bool is_emulated() { return std::getenv("PINLANE_CUDART_MODE") != nullptr; }

int devices() {
  int count = 0;
  OK(cudaGetDeviceCount(&count));
  return count;
}

struct Gate::Door {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_open = false;
  std::function<void()> then;
};

Gate::Gate(cudaStream_t stream, std::function<void()> then) : door(std::make_shared<Door>()) {
  door->then = std::move(then);
  auto pass = [](void* data) {
    std::unique_ptr<std::shared_ptr<Door>> door(static_cast<std::shared_ptr<Door>*>(data));
    std::unique_lock<std::mutex> lock((*door)->mutex);
    // No test takes this long unless a call blocks that must not.
    (*door)->changed.wait_for(lock, 20s, [&] { return (*door)->is_open; });
    (*door)->then();
  };
  OK(cudaLaunchHostFunc(stream, pass, new std::shared_ptr<Door>(door)));
}

void Gate::open() {
  std::lock_guard<std::mutex> lock(door->mutex);
  door->is_open = true;
  door->changed.notify_all();
}

struct Call::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_over = false;
};

Call::Call(std::function<void()> call) : state(std::make_shared<State>()) {
  thread = std::thread([call = std::move(call), state = state] {
    call();
    std::lock_guard<std::mutex> lock(state->mutex);
    state->is_over = true;
    state->changed.notify_all();
  });
}

bool Call::returns_within(std::chrono::milliseconds time) {
  std::unique_lock<std::mutex> lock(state->mutex);
  return state->changed.wait_for(lock, time, [&] { return state->is_over; });
}

bool Call::returns() { return returns_within(10s); }

bool Call::is_held() { return !returns_within(is_emulated() ? 100ms : 500ms); }

cudaStream_t blocking_stream() {
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  return stream;
}

cudaStream_t non_blocking_stream() {
  cudaStream_t stream;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

cudaEvent_t event() {
  cudaEvent_t event;
  OK(cudaEventCreate(&event));
  return event;
}

cudaEvent_t mark(cudaStream_t stream) {
  cudaEvent_t marked = event();
  OK(cudaEventRecord(marked, stream));
  return marked;
}

// NotReady may or may not be a last error (rule 29).
static bool says_done(cudaEvent_t event) {
  const cudaError_t answer = cudaEventQuery(event);
  EXPECT(answer == cudaSuccess || answer == cudaErrorNotReady);
  if (answer == cudaErrorNotReady) (void)cudaGetLastError();
  return answer == cudaSuccess;
}

bool is_done(cudaEvent_t event) {
  for (int round = 0; round < 20; ++round) {
    if (says_done(event)) return true;
  }
  return false;
}

bool gets_done(cudaEvent_t event) {
  for (int round = 0; round < 5000; ++round) {
    if (says_done(event)) return true;
    if (round > 50) std::this_thread::sleep_for(1ms);
  }
  return false;
}

char* device_memory(size_t bytes) {
  void* memory;
  OK(cudaMalloc(&memory, bytes));
  return static_cast<char*>(memory);
}

char* pinned(size_t bytes) {
  void* memory;
  OK(cudaMallocHost(&memory, bytes));
  return static_cast<char*>(memory);
}

int value_of(const char* host, size_t bytes) {
  const bool same = std::all_of(host, host + bytes, [&](char byte) { return byte == *host; });
  return same ? static_cast<unsigned char>(*host) : -1;
}

int device_value(const char* device, size_t bytes) {
  OK(cudaDeviceSynchronize());
  std::vector<char> host(bytes);
  OK(cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost));
  return value_of(host.data(), bytes);
}

int main(int count, char** arguments) {
  std::sort(rules().begin(), rules().end(),
            [](const Rule& a, const Rule& b) { return std::strcmp(a.name, b.name) < 0; });
  if (count < 2) return run_all(arguments[0]);
  if (std::strcmp(arguments[1], "--list") == 0) {
    for (const Rule& rule : rules()) {
      std::printf("%s\t%s\t%s\n", rule.name, rule.choices, rule.findings);
    }
    return 0;
  }
  for (const Rule& rule : rules()) {
    if (std::strcmp(arguments[1], rule.name) == 0) return run(rule);
  }
  std::printf("there is no %s\n", arguments[1]);
  return 2;
}
