/* Kernels of a program's own on the drop-in CUDA runtime (docs/drop-in.md, "Launches with declared
 * uses"). libcudart.so.13 and libcudart.so.12 of pinlane export these functions; NVIDIA's do not.
 * A program that runs on both looks them up by dlsym(RTLD_DEFAULT, "pinlane_launch").
 *
 * Every function may be called from any thread. None of them blocks, apart from the time that the
 * work takes which runs during a call. */
#ifndef PINLANE_DROPIN_H
#define PINLANE_DROPIN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of bytes that a kernel uses. One row is one range. */
typedef struct {
  const void *start; /* the first row */
  size_t bytes;      /* the length of a row in bytes; 0: no use */
  size_t rows;       /* how many rows; 0: no use */
  size_t stride;     /* from the start of a row to that of the next, in bytes; one row needs none */
  int writes;        /* 0: reads, 1: writes. What is read and written is two uses. */
} pinlane_use;

/* For `writes` of a declared use, as in 1 | PINLANE_LATER: work will tell by pinlane_used which of
 * these bytes it uses. That by itself is no use. Without it, a run in which work runs late misses
 * races with memory that has been used again by then. */
#define PINLANE_LATER 2

/* Enqueues a kernel on a stream (cudaStream_t; NULL is the legacy default stream).
 *
 * work(data) runs when the kernel's turn comes, on any thread, once for each launch of a graph that
 * has captured it. It uses device memory where pinlane_storage says. If some of the declared uses
 * are of page-locked memory, all of that is then open to it, and to other threads that work for it.
 * It makes no CUDA call, waits for no thread that makes one, and does not unwind.
 *
 * drop(data) is called once when data is no longer needed: also if this function fails, when the
 * graph that has captured the launch is destroyed, or at the end of the process if work never ran.
 * It is called on a thread that makes a CUDA call, at the end of that call, and may make CUDA calls
 * itself. NULL: nothing is called. It is not called in a forked child.
 *
 * Only the declared uses count. Those of device memory and of page-locked memory (cudaMallocHost,
 * cudaHostAlloc, cudaHostRegister, cudaMallocManaged) are noted for the race checker at the
 * launch's place in its stream; those of pageable memory are ignored. When the kernel's turn comes
 * they are checked first. If device memory is freed, was never allocated, or is another device's
 * that is out of reach, that is a finding IllegalAddress, and the device is lost. If page-locked
 * memory is freed, that is a finding FreedInFlight. In both cases work does not run.
 *
 * name is copied, and is the kernel's name in findings.
 *
 * Returns a cudaError_t, which cudaGetLastError returns too: cudaErrorInvalidValue (1) if name,
 * work, or uses with a count is NULL, or if rows are longer than the address space;
 * cudaErrorInvalidResourceHandle (400) if the stream is not one of the current device;
 * cudaErrorNotPermitted (800) inside work and host functions; errors of the stream and of earlier
 * work. */
int pinlane_launch(const char *name, void *stream, const pinlane_use *uses, size_t count,
                   void (*work)(void *), void *data, void (*drop)(void *));

/* Where work finds the bytes of an address of device memory. No program can use them at the address
 * itself. Neighbours are neighbours there too, and the answer for an address never changes. Any
 * other address is its own answer. Not inside work, where it returns NULL: ask before the launch.
 * Uses are declared by the addresses of the device. */
void *pinlane_storage(const void *address);

/* Only inside work, or on a thread that works for it: uses that depend on data, such as the rows
 * that an index names. They are checked and noted when work has returned. Elsewhere it does
 * nothing. */
void pinlane_used(const pinlane_use *uses, size_t count);

/* This thread's CUDA calls do this for the user from now on, such as
 * "copy_ float32[256, 1024] cpu -> cuda:0"; NULL: nothing is known any more. Findings carry it:
 * each operation of a race has it in its text and as "label" in its JSON. The text is copied and
 * kept until the process ends, each text once. It is cheap, and no CUDA call. */
void pinlane_label(const char *text);

/* The program needs something that nothing stands in for: a finding of kind "Unsupported" with this
 * text and the line of the caller. Not inside work, where it does nothing. */
void pinlane_unsupported(const char *what);

#ifdef __cplusplus
}
#endif

#endif
