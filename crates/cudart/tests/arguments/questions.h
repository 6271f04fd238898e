// What CUDA answers to arguments that are odd, wrong or at the edge: one question, one process.
//
// A file has the questions of one noun, as a table. The program knows nothing of this project: it
// runs on a GPU as it stands, and `h100.txt` beside it is what one answered.
#pragma once

#include "api.h"

#include <cstring>
#include <string>
#include <vector>

// The size of most memory.
constexpr size_t BYTES = 1 << 20;
// More than any machine has, and no wrap-around.
constexpr size_t HUGE_BYTES = ~0ull >> 1;

// What a question may use. It is made anew for each, in the process of the question.
struct World {
  // Page-locked.
  char *host, *other_host;
  char *device, *other_device;
  // Unified memory.
  char *managed;
  // Begins at a page.
  char *pageable;
  // Where nothing is mapped.
  char *unmapped;
  // A file that is mapped for reading only.
  char *read_only;
  char *freed_host, *freed_device;
  // Neither waits for the legacy default stream.
  cudaStream_t stream, other_stream;
  cudaStream_t destroyed;
  // The event without timing, and one that was destroyed.
  cudaEvent_t event, timed, destroyed_event;
  cudaMemPool_t default_pool;

  // Where calls put what they give.
  void *out;
  int number;
  unsigned flags;
  float time;
  size_t size;
  unsigned long long id;
  cudaStream_t new_stream;
  cudaEvent_t new_event;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaMemPool_t pool;
  CUdeviceptr address;
  CUcontext context;
  cudaArray_t array;
};

struct Question {
  std::string name;
  long (*ask)(World &);
};

using Questions = std::vector<Question>;

// A question of one call: its answer is the call's.
#define ASK(name, ...)                                                                             \
  {name, [](World &w) -> long {                                                                    \
     (void)w;                                                                                      \
     return static_cast<long>(__VA_ARGS__);                                                        \
   }}

// A question of several: a block that gives the answer.
#define STEPS(name, ...)                                                                           \
  {name, [](World &w) -> long {                                                                    \
     (void)w;                                                                                      \
     __VA_ARGS__                                                                                   \
   }}

// An answer and what the call gave: `scale` is above all that it may give.
inline long both(long answer, long scale, long given) { return answer * scale + given; }

inline CUdeviceptr at(const void *memory) { return reinterpret_cast<CUdeviceptr>(memory); }

// A number where a handle or a pointer is expected.
template <typename T>
T wrong(size_t number) {
  return reinterpret_cast<T>(number);
}

// Ends the capture of the stream; gives what the end answers.
inline long ended(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  return cudaStreamEndCapture(stream, &graph);
}

Questions host_memory();
Questions device_memory();
Questions pointers();
Questions copies();
Questions planes();
Questions fills();
Questions streams();
Questions events();
Questions devices();
Questions pools();
Questions batches();
Questions graphs();
Questions captures();
Questions host_functions();
Questions driver_contexts();
Questions driver_memory();
Questions driver_work();
