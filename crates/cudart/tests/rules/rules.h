// Tests of the rules of docs/semantics.md, by their numbers, in plain CUDA.
//
// They know nothing of this project. The same source runs on the emulated device and, linked with
// NVIDIA's runtime, on a GPU. Work that must not be complete yet is held back by a gate, a host
// function that waits for the test.
//
// Where the rule leaves a choice, a test says what it saw. Every choice has to be one that the test
// declares; on the emulated device some seed has to take each of them.
#pragma once

#include "../programs/cuda.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

struct Rule {
  const char* name;
  // What may be seen, separated by commas; empty if there is no choice. The emulated device never
  // makes a choice that a question mark follows.
  const char* choices;
  // Kinds of findings that the emulated device reports: the test breaks a rule on purpose. A kind
  // with a question mark comes with some seeds only.
  const char* findings;
  void (*run)();
};

struct Registered {
  explicit Registered(const Rule& rule);
};

#define RULE(name, choices, findings)                                       \
  static void name();                                                       \
  static const Registered registered_##name({#name, choices, findings, name}); \
  static void name()

// Says which of its choices the device has taken.
void saw(const char* choice);

// Ends the test: it cannot run here.
[[noreturn]] void skip(const char* reason);

// Whether this is the emulated device. Only for what CUDA leaves undefined.
bool is_emulated();

int devices();

// The size of most memory.
constexpr size_t BYTES = 4096;

// Holds a stream back until it is opened, at the latest when it goes out of scope.
class Gate {
 public:
  // When it opens, the stream calls `then`.
  explicit Gate(cudaStream_t stream, std::function<void()> then = [] {});
  ~Gate() { open(); }
  void open();

 private:
  struct Door;
  std::shared_ptr<Door> door;
};

// A call on a thread of its own: does it return?
class Call {
 public:
  explicit Call(std::function<void()> call);
  ~Call() { thread.join(); }
  // Waits for it, for much longer than a call takes that does not wait for a gate.
  bool returns();
  // Whether it has not returned after a time in which most calls do.
  bool is_held();

 private:
  struct State;
  bool returns_within(std::chrono::milliseconds time);
  std::shared_ptr<State> state;
  std::thread thread;
};

cudaStream_t blocking_stream();
cudaStream_t non_blocking_stream();
cudaEvent_t event();
// Records a new event.
cudaEvent_t mark(cudaStream_t stream);
// Whether the event is complete, after more queries than a lazy device denies.
bool is_done(cudaEvent_t event);
// Whether the event is complete within seconds.
bool gets_done(cudaEvent_t event);

char* device_memory(size_t bytes = BYTES);
char* pinned(size_t bytes = BYTES);
// The byte that all of the memory holds, or -1.
int value_of(const char* host, size_t bytes);
// The same of device memory: by a stream of its own, when all else is done.
int device_value(const char* device, size_t bytes = BYTES);
