/* What the programs of the zoo share. Each defines `program`, which tells whether its own result is
 * right. `./app` is the program as reported, `./app fixed` its corrected twin. */
#pragma once
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES ((size_t)65536)

#define OK(call)                                                                    \
  do {                                                                              \
    const cudaError_t error_ = (call);                                              \
    if (error_ != cudaSuccess) {                                                    \
      printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(error_)); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

/* Whether the corrected twin is asked for. */
static bool fixed;

static bool program(void);

static inline bool all_are(const void *bytes, int value, size_t count) {
  const unsigned char *at = (const unsigned char *)bytes;
  for (size_t i = 0; i < count; ++i) {
    if (at[i] != value) return false;
  }
  return true;
}

static inline char *device_memory(size_t bytes) {
  void *memory;
  OK(cudaMalloc(&memory, bytes));
  return (char *)memory;
}

static inline char *pinned_memory(size_t bytes) {
  void *memory;
  OK(cudaMallocHost(&memory, bytes));
  return (char *)memory;
}

/* A stream that does not synchronize with the legacy default stream. */
static inline cudaStream_t new_stream(void) {
  cudaStream_t stream;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

static inline cudaEvent_t new_event(void) {
  cudaEvent_t event;
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

int main(int argc, char **argv) {
  fixed = argc > 1 && strcmp(argv[1], "fixed") == 0;
  const bool right = program();
  puts(right ? "right" : "wrong bytes");
  return right ? 0 : 3;
}
