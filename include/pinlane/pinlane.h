/* pinlane: page-locked memory and asynchronous copies between host and GPU.
 * Generated from src/capi by cbindgen: change it there.
 *
 * Conventions
 *
 * - A function returns a status; PINLANE_STATUS_OK is 0. After "Statuses", names stand without
 *   their prefix PINLANE_STATUS_. pinlane_last_error() gives the message of this thread's last
 *   failed call. A call that reaches the CUDA runtime may also give DEVICE_LOST, CUDA, or the
 *   status of another error of the runtime.
 * - Arguments: first what the function acts on, then inputs, then outputs. Outputs are written
 *   only on success. A NULL, stale or foreign handle gives a status; so does a misaligned pointer.
 * - Handles are opaque. They are not pointers: do not dereference them. Each type has one function
 *   that frees its handles; freeing NULL is a no-op. An object keeps alive what it was made from,
 *   so handles may be freed in any order.
 * - Sizes, offsets and lengths are in bytes. "Does not block" speaks of the host: the call enqueues
 *   work, which the device executes in the order of the stream.
 * - Any thread may call any function, unless its comment says otherwise.
 * - A stream crosses as void *, a cudaStream_t: 0 and 1 are the legacy default stream, 2 is the
 *   per-thread default stream.
 * - Arrays of copies, layers and pairs are read before the call returns. What copies write must not
 *   overlap.
 * - Structs that begin with their size grow at their end. A library accepts the sizes of its own
 *   header and of all older ones that are compatible. It fills up a shorter input with defaults,
 *   and cuts off an output. The defaults are what the struct's _INIT macro holds; where options may
 *   be NULL, that stands for them. Structs in arrays do not grow: they have spare members, which
 *   are 0.
 * - Functions of the program that pinlane calls must not unwind (by a C++ exception or otherwise).
 *   Their comments say on which thread they run, and whether they may call pinlane.
 * - "Safety" lists what pinlane cannot check.
 */

#ifndef PINLANE_PINLANE_H
#define PINLANE_PINLANE_H

#include <stddef.h>
#include <stdint.h>

/** The version of this header, as Cargo counts it. */
#define PINLANE_VERSION_MAJOR 0
#define PINLANE_VERSION_MINOR 1
#define PINLANE_VERSION_PATCH 0
#define PINLANE_VERSION_STRING "0.1.0"
#define PINLANE_VERSION \
  (1000000 * PINLANE_VERSION_MAJOR + 1000 * PINLANE_VERSION_MINOR + PINLANE_VERSION_PATCH)
/* Tensors of DLPack; dlpack.h (github.com/dmlc/dlpack) says what they hold. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;

#ifdef __cplusplus
extern "C" {
#endif


/**
 * pinlane takes the route that is fastest by rule.
 */
#define PINLANE_ROUTE_AUTOMATIC 0

/**
 * One `cudaMemcpyAsync` for each run of adjacent copies. Best for one long run.
 */
#define PINLANE_ROUTE_COPIES 1

/**
 * One `cudaMemcpyBatchAsync` for many copies, if the driver has it (CUDA 12.8). Not on the legacy
 * default stream.
 */
#define PINLANE_ROUTE_BATCH_CALL 2

/**
 * A kernel moves the bytes: it reads or writes page-locked memory over the bus.
 */
#define PINLANE_ROUTE_KERNEL 3

/**
 * The numbers are `uint32_t`.
 */
#define PINLANE_INDEX_U32 0

/**
 * The numbers are `int32_t`.
 */
#define PINLANE_INDEX_I32 1

/**
 * The numbers are `uint64_t`.
 */
#define PINLANE_INDEX_U64 2

/**
 * The numbers are `int64_t`.
 */
#define PINLANE_INDEX_I64 3

/**
 * Flag of `pinlane_indices`: no number is repeated, so pinlane does not check. If one is repeated
 * nevertheless, each byte of the written row comes from one of its sources, or the call fails with
 * `PINLANE_STATUS_INVALID_VALUE`.
 */
#define PINLANE_INDICES_DISTINCT 1

/**
 * Handles of `pinlane_device`.
 */
#define PINLANE_KIND_DEVICE 1

/**
 * Handles of `pinlane_ticket`.
 */
#define PINLANE_KIND_TICKET 2

/**
 * Handles of `pinlane_stream`.
 */
#define PINLANE_KIND_STREAM 3

/**
 * Handles of `pinlane_pool`.
 */
#define PINLANE_KIND_POOL 4

/**
 * Handles of `pinlane_buffer`.
 */
#define PINLANE_KIND_BUFFER 5

/**
 * Handles of `pinlane_device_buffer`.
 */
#define PINLANE_KIND_DEVICE_BUFFER 6

/**
 * Handles of `pinlane_file`.
 */
#define PINLANE_KIND_FILE 7

/**
 * Handles of `pinlane_foreign`.
 */
#define PINLANE_KIND_FOREIGN 8

/**
 * Handles of `pinlane_emulator`.
 */
#define PINLANE_KIND_EMULATOR 9

/**
 * Handles of `pinlane_prefetch`.
 */
#define PINLANE_KIND_PREFETCH 10

/**
 * Handles of `pinlane_request`.
 */
#define PINLANE_KIND_REQUEST 11

/**
 * Handles of `pinlane_pairs`.
 */
#define PINLANE_KIND_PAIRS 12

/**
 * Handles of `pinlane_recording`.
 */
#define PINLANE_KIND_RECORDING 13

/**
 * Handles of `pinlane_capture`.
 */
#define PINLANE_KIND_CAPTURE 14

/**
 * Handles of `pinlane_graph`.
 */
#define PINLANE_KIND_GRAPH 15

/**
 * Memory is never freed and never reused: nothing proves that the device is done with it.
 */
#define PINLANE_LOG_QUARANTINED 1

/**
 * Reports lost memory: the system refused to take it back.
 */
#define PINLANE_LOG_NOT_RELEASED 2

/**
 * A function that frees something returned a failure, perhaps to a destructor, which cannot pass
 * it on. The message is that of `pinlane_last_error`.
 */
#define PINLANE_LOG_FREE_REFUSED 3

/**
 * Consumers of the tensor must not write to it.
 */
#define PINLANE_DLPACK_READ_ONLY 1

/**
 * Plain host memory (`kDLCPU`), which all libraries accept.
 */
#define PINLANE_DLPACK_CPU 1

/**
 * Page-locked host memory (`kDLCUDAHost`).
 */
#define PINLANE_DLPACK_CUDA_HOST 3

/**
 * Emulated operations run as soon as they can.
 */
#define PINLANE_EXECUTION_EAGER 0

/**
 * Emulated operations run only when the program waits for them: as late as CUDA allows.
 */
#define PINLANE_EXECUTION_LAZY 1

/**
 * Emulated operations run at any call or wait, as the seed decides.
 */
#define PINLANE_EXECUTION_RANDOM 2

/**
 * The same, and copies and fills land in pieces, with work of other streams in between.
 */
#define PINLANE_EXECUTION_CHUNKED 3

/**
 * The stream with the highest priority runs. Priorities are random, and change at random points,
 * of which there are `pct_depth - 1`. A bug that needs `pct_depth` pairs of steps in a certain
 * order is found with a known probability (Burckhardt and others, ASPLOS 2010).
 */
#define PINLANE_EXECUTION_PCT 4

/**
 * The emulated driver does not support batches of copies, as drivers before CUDA 12.8.
 */
#define PINLANE_EMULATOR_NO_BATCHES 1

/**
 * Emulated kernels cannot use page-locked memory at the addresses that the host uses.
 */
#define PINLANE_EMULATOR_NO_HOST_ADDRESSES 2

/**
 * The machine does not look for races: two unordered operations that use the same bytes, at least
 * one of them writing. Without this flag it looks for them, and reports them as findings.
 */
#define PINLANE_EMULATOR_NO_RACES 4

/**
 * Findings of races name the program's lines that made the calls, as far as its debug information
 * has them. It makes each call a thousand times slower.
 */
#define PINLANE_EMULATOR_SITES 8

/**
 * In the search for races, a thread knows only the work that it has waited for itself. Without
 * this flag, work that any thread has waited for is known to all threads from then on.
 */
#define PINLANE_EMULATOR_THREADS_APART 16

/**
 * The machine records its decisions, for `pinlane_emulator_replay`.
 */
#define PINLANE_EMULATOR_RECORD 32

/**
 * The machine sees the program's own accesses to its page-locked memory: a load or store before an
 * operation is known to be complete is a finding, with its line, as far as debug information has
 * it. The machine uses SIGSEGV and SIGTRAP, and passes signals for other memory on to the previous
 * handlers. If the program replaces these handlers later, the next call ends the watch, and
 * reports that once on standard error. A system call on memory that is in use fails with `EFAULT`.
 * Pools of the machine allocate their memory, even if `page_locking` says otherwise, so that the
 * machine sees it. It does not see registered memory and blocks aligned to more than a page.
 */
#define PINLANE_EMULATOR_WATCH_HOST 64

/**
 * `pinlane_explore` does not print its findings on stderr.
 */
#define PINLANE_EXPLORE_QUIET 1

/**
 * Tries every order of the operations that the program's waits can distinguish, instead of modes
 * and seeds. For programs of a few operations. `runs` then limits the number of orders.
 */
#define PINLANE_EXPLORE_ORDERS 2

/**
 * One call fails.
 */
#define PINLANE_FAULT_ONCE 0

/**
 * That call and every later one of its name fail.
 */
#define PINLANE_FAULT_FOREVER 1

/**
 * One call takes effect, and then fails.
 */
#define PINLANE_FAULT_ONCE_LATE 2

/**
 * That call and every later one of its name take effect, and then fail.
 */
#define PINLANE_FAULT_FOREVER_LATE 3

/**
 * The file is read past the system's page cache (`O_DIRECT`): for files larger than memory, or
 * read once.
 */
#define PINLANE_FILE_DIRECT 1

/**
 * The work may read and write the buffer.
 */
#define PINLANE_ACCESS_WRITE 0

/**
 * The work only reads the buffer. Any number of threads and streams may do so at once.
 */
#define PINLANE_ACCESS_READ 1

/**
 * Memory comes from the system, in huge pages on the device's NUMA node. Several threads touch it,
 * then it is registered with CUDA. If that is not possible, the CUDA runtime allocates it. Pools
 * of an emulated machine with `PINLANE_EMULATOR_WATCH_HOST` allocate too, because it sees no other
 * memory.
 */
#define PINLANE_PAGE_LOCKING_REGISTER 0

/**
 * The CUDA runtime allocates memory.
 */
#define PINLANE_PAGE_LOCKING_ALLOCATE 1

/**
 * Memory is mapped into the address space of the devices. With unified addressing it always is.
 */
#define PINLANE_POOL_MAPPED 1

/**
 * Memory is write-combined, and the CUDA runtime allocates it. The CPU reads such memory many
 * times slower, so use it for buffers that the host only writes, front to back.
 */
#define PINLANE_POOL_WRITE_COMBINED 2

/**
 * Threads cache no blocks: every allocation takes the pool's lock.
 */
#define PINLANE_POOL_NO_THREAD_CACHES 4

/**
 * Text for people, in one line.
 */
#define PINLANE_STATS_TEXT 0

/**
 * One JSON object with everything, also by block size. Times are in nanoseconds.
 */
#define PINLANE_STATS_JSON 1

/**
 * Prometheus' text format, version 0.0.4. Times are in seconds.
 */
#define PINLANE_STATS_PROMETHEUS 2

/**
 * Each batch comes as soon as it is ready, instead of in the producer's order.
 */
#define PINLANE_PREFETCH_UNORDERED 1

/**
 * The last batch is dropped if it has fewer bytes than the first. The producer is then called one
 * batch further ahead.
 */
#define PINLANE_PREFETCH_DROP_LAST 2

/**
 * JSON in Chrome's trace event format, one track for each thread and each stream. Perfetto
 * (ui.perfetto.dev) and chrome://tracing open it. A launch of a graph has arguments that say which
 * captured operations it consists of.
 */
#define PINLANE_TRACE_JSON 0

/**
 * A drawing, one row for each thread and each stream, for light and dark pages.
 */
#define PINLANE_TRACE_SVG 1

/**
 * Every copy goes through the slots, even the smallest.
 */
#define PINLANE_STAGING_NO_DIRECT 1

/**
 * No upload is written to its slots past the cache.
 */
#define PINLANE_STAGING_NO_STREAMING 2

/**
 * No threads: every caller copies alone.
 */
#define PINLANE_COPY_TEAM_ALONE 1

/**
 * Threads sleep as soon as they have no work.
 */
#define PINLANE_COPY_TEAM_NO_SPIN 2

/**
 * The stream waits for the legacy default stream, and that stream waits for it.
 */
#define PINLANE_STREAM_BLOCKING 1

/**
 * A buffer in page-locked memory, from a pool or of the caller's own memory. It tracks the device
 * work that uses it. Any thread may use it, one at a time: a call that conflicts with another
 * thread's at the same moment gets `PINLANE_STATUS_BUSY`.
 */
typedef struct pinlane_buffer pinlane_buffer;

/**
 * Work that is being captured: recorded, not executed. `pinlane_capture_finish` makes a graph of
 * it. Any thread may use it, one at a time.
 *
 * A capture takes each buffer that its work names: from then on until the graph is freed, calls
 * that conflict with the work get `PINLANE_STATUS_BUSY`, and the memory stays, even if the buffer
 * is freed. Buffers that the work only reads can still be read, also by other graphs. See
 * `pinlane_graph_lend_buffer` for how the program uses the others between launches.
 */
typedef struct pinlane_capture pinlane_capture;

/**
 * A device: a GPU, or an emulated one. Any thread may use it. Objects made from it stay valid
 * after it is freed.
 */
typedef struct pinlane_device pinlane_device;

/**
 * A buffer in the memory of a device. It tracks the work that uses it, as a `pinlane_buffer` does.
 * Any thread may use it, one at a time: a call that conflicts with another thread's at the same
 * moment gets `PINLANE_STATUS_BUSY`.
 */
typedef struct pinlane_device_buffer pinlane_device_buffer;

/**
 * An emulated machine, with all of its devices: for tests that make it fail, and that look for
 * misuse and leaks. Any thread may use it.
 */
typedef struct pinlane_emulator pinlane_emulator;

/**
 * A file that is open for reading. Any thread may use it, even several at once.
 */
typedef struct pinlane_file pinlane_file;

/**
 * The caller's own work while it is being enqueued. `pinlane_foreign_end` ends it.
 */
typedef struct pinlane_foreign pinlane_foreign;

/**
 * Captured work that can be launched again and again, as one operation. It holds the buffers that
 * the work names: their memory stays until the graph is freed and its launches are complete, even
 * if the buffers are freed before. Any thread may use it, one at a time.
 */
typedef struct pinlane_graph pinlane_graph;

/**
 * Pairs of page-locked memory and device memory, which are copied in either direction as often as
 * needed. Any thread may use it, one at a time.
 */
typedef struct pinlane_pairs pinlane_pairs;

/**
 * A pool of page-locked host memory. Any thread may use it. Its buffers stay valid after the
 * handle is freed.
 */
typedef struct pinlane_pool pinlane_pool;

/**
 * A pipeline: threads of pinlane pull batches from a producer and copy them to a device, ahead of
 * their use. Any thread may use it; one at a time requests batches.
 */
typedef struct pinlane_prefetch pinlane_prefetch;

/**
 * Records the work on devices, until it is stopped. Any thread may use it, one at a time.
 */
typedef struct pinlane_recording pinlane_recording;

/**
 * A call that reports its outcome to a callback. Any thread may use it. Freeing it does not change
 * the call.
 */
typedef struct pinlane_request pinlane_request;

/**
 * A queue of device work, which is executed in order. Any thread may use it.
 */
typedef struct pinlane_stream pinlane_stream;

/**
 * Shows when one asynchronous operation is complete. Any thread may use it. Freeing it does not
 * change the operation.
 */
typedef struct pinlane_ticket pinlane_ticket;

/**
 * The result of a function: `PINLANE_STATUS_OK`, or why it failed. Values are never renumbered;
 * new ones may be added.
 */
typedef int32_t pinlane_status;

/**
 * One copy of a batch, between host and device. Set all members that you do not use to 0.
 *
 * The host side is pageable memory, named by its address, a part of a page-locked `buffer`, or
 * memory of a pool, named by `pinned`. The device side is the caller's own device memory, named by
 * its address, or a part of a `device_buffer`. Name each side once: if not by its address, the
 * address must be NULL.
 */
typedef struct pinlane_copy {
  /**
   * The source: host memory in an upload, device memory in a download.
   */
  const void *src;
  /**
   * The destination: device memory in an upload, host memory in a download.
   */
  void *dst;
  /**
   * The number of bytes to copy. If 0, both addresses may be NULL.
   */
  size_t bytes;
  /**
   * The page-locked buffer that is the host side, or NULL.
   */
  struct pinlane_buffer *buffer;
  /**
   * The offset of the copy in `buffer`, in bytes.
   */
  size_t buffer_offset;
  /**
   * The device buffer that is the device side, or NULL.
   */
  struct pinlane_device_buffer *device_buffer;
  /**
   * The offset of the copy in `device_buffer`, in bytes.
   */
  size_t device_offset;
  /**
   * Memory of a pool that is the host side, or NULL. It is copied as by `pinlane_upload_pinned`
   * and `pinlane_download_pinned`: no call waits for it.
   */
  void *pinned;
} pinlane_copy;

/**
 * Options of a batch. Initialise with `PINLANE_BATCH_OPTIONS_INIT`.
 */
typedef struct pinlane_batch_options {
  /**
   * `sizeof(pinlane_batch_options)`.
   */
  size_t size;
  /**
   * `PINLANE_ROUTE_AUTOMATIC`, or another of `PINLANE_ROUTE_*`.
   */
  int32_t route;
  /**
   * Must be 0.
   */
  uint32_t flags;
} pinlane_batch_options;

/**
 * Called when a copy has arrived, with `user`, the number of the copy, and its `bytes` bytes at
 * `data`, which may be read until the function returns. It returns 0 to be called for further
 * copies.
 *
 * It runs on the thread that made the call. It must not unwind (by a C++ exception or otherwise),
 * and must not call pinlane.
 */
typedef int32_t (*pinlane_landed)(void *user, size_t number, const void *data, size_t bytes);

/**
 * One copy of a batch, from device memory to device memory. Set all members that you do not use to
 * 0.
 *
 * A side is the caller's own memory of the stream's device, named by its address, or a part of a
 * buffer; its address must then be NULL.
 */
typedef struct pinlane_device_copy {
  /**
   * The address of the source, or NULL.
   */
  const void *src;
  /**
   * The address of the destination, or NULL.
   */
  void *dst;
  /**
   * The number of bytes to copy. If 0, both addresses may be NULL.
   */
  size_t bytes;
  /**
   * The buffer that is the source, or NULL.
   */
  struct pinlane_device_buffer *src_buffer;
  /**
   * The offset of the copy in `src_buffer`, in bytes.
   */
  size_t src_offset;
  /**
   * The buffer that is the destination, or NULL. No copy of the batch may have it as its source.
   */
  struct pinlane_device_buffer *dst_buffer;
  /**
   * The offset of the copy in `dst_buffer`, in bytes.
   */
  size_t dst_offset;
  /**
   * Must be 0.
   */
  uint64_t reserved;
} pinlane_device_copy;

/**
 * One pair: a part of a page-locked buffer, or memory of a pool, and a part of a device buffer of
 * the same length. Set all members that you do not use to 0.
 */
typedef struct pinlane_pair {
  /**
   * The page-locked buffer, or NULL.
   */
  struct pinlane_buffer *buffer;
  /**
   * The offset of the pair in `buffer`, in bytes.
   */
  size_t buffer_offset;
  /**
   * The device buffer.
   */
  struct pinlane_device_buffer *device_buffer;
  /**
   * The offset of the pair in `device_buffer`, in bytes.
   */
  size_t device_offset;
  /**
   * The length of each side. If 0, `pinned` may be NULL, too.
   */
  size_t bytes;
  /**
   * Memory of a pool, instead of `buffer`, or NULL. It is copied as by `pinlane_upload_pinned`
   * and `pinlane_download_pinned`.
   */
  void *pinned;
} pinlane_pair;

/**
 * Two tables: one in host memory and one in device memory. A table is a range of memory that is
 * cut into rows, or blocks, of equal length. Set all members that you do not use to 0.
 *
 * The host table is pageable memory, named by its address, a part of a page-locked `buffer`, or
 * memory of a pool, named by `pinned`. The device table is the caller's own device memory, named
 * by its address, or a part of a `device_buffer`. Name each table once: if not by its address, the
 * address must be NULL.
 */
typedef struct pinlane_layer {
  /**
   * The source: host memory in an upload, device memory in a download.
   */
  const void *src;
  /**
   * The destination: device memory in an upload, host memory in a download.
   */
  void *dst;
  /**
   * The size of the source. If 0, its address may be NULL.
   */
  size_t src_bytes;
  /**
   * The size of the destination. If 0, its address may be NULL.
   */
  size_t dst_bytes;
  /**
   * The page-locked buffer with the host table, or NULL.
   */
  struct pinlane_buffer *buffer;
  /**
   * The offset of the table in `buffer`, in bytes.
   */
  size_t buffer_offset;
  /**
   * The device buffer with the device table, or NULL.
   */
  struct pinlane_device_buffer *device_buffer;
  /**
   * The offset of the table in `device_buffer`, in bytes.
   */
  size_t device_offset;
  /**
   * Memory of a pool with the host table, or NULL. It is copied as by `pinlane_upload_pinned`
   * and `pinlane_download_pinned`: no call waits for it.
   */
  void *pinned;
} pinlane_layer;

/**
 * The parts of a source and of a destination that a copy moves: `lengths[i]` elements from
 * `from[i]` on in the source go to `to[i]` in the destination. An element has `unit` bytes.
 *
 * Parts of the source may overlap, those of the destination may not. An empty part copies nothing,
 * but must lie in both too. The arrays may be NULL if `count` is 0.
 */
typedef struct pinlane_parts {
  /**
   * Where the parts begin in the source, in elements.
   */
  const size_t *from;
  /**
   * Where the parts begin in the destination, in elements.
   */
  const size_t *to;
  /**
   * How long the parts are, in elements. NULL: each has `length`.
   */
  const size_t *lengths;
  /**
   * The length of each part, in elements. No meaning unless `lengths` is NULL.
   */
  size_t length;
  /**
   * The number of parts.
   */
  size_t count;
  /**
   * The size of an element in bytes. 0 means 1: all numbers count bytes.
   */
  size_t unit;
} pinlane_parts;

/**
 * The rows of a table that a copy uses, by their numbers, counted from 0. Initialise with
 * `PINLANE_INDICES_INIT`. If a function takes NULL instead, that means all rows in order.
 *
 * Numbers in host memory are read and checked at the call. Numbers in a `device_buffer` are read
 * when the copy runs, in stream order: a row whose number is not in the table is not copied. So
 * such numbers, -1 for example, may pad a list, with tables in any memory.
 *
 * A row that is read may be named twice. A row that is written may not.
 */
typedef struct pinlane_indices {
  /**
   * `sizeof(pinlane_indices)`.
   */
  size_t size;
  /**
   * The type of the numbers: one of `PINLANE_INDEX_*`.
   */
  int32_t kind;
  /**
   * 0, or `PINLANE_INDICES_DISTINCT`.
   */
  uint32_t flags;
  /**
   * The numbers in host memory, or NULL.
   */
  const void *numbers;
  /**
   * The number of numbers. If 0, `numbers` may be NULL.
   */
  size_t count;
  /**
   * The device buffer that has the numbers, or NULL. The copy must not write to that buffer.
   */
  struct pinlane_device_buffer *device_buffer;
  /**
   * The offset of the numbers in `device_buffer`, in bytes: a multiple of the size of a number.
   */
  size_t device_offset;
} pinlane_indices;

/**
 * Where rows of equal length lie, in bytes. The first one begins at the first byte of its side.
 *
 * Rows lie in planes of equally many: a matrix is one plane, a volume has several. Rows must not
 * overlap. Planes may follow each other, or lie interleaved, a row of each in turn.
 */
typedef struct pinlane_strided {
  /**
   * The length of a row.
   */
  size_t row_bytes;
  /**
   * The number of rows of a plane.
   */
  size_t rows;
  /**
   * From the start of a row to that of the next. No meaning if a plane has one row.
   */
  size_t pitch;
  /**
   * The number of planes. 0 means 1.
   */
  size_t planes;
  /**
   * From the start of a plane to that of the next. No meaning if there is one plane.
   */
  size_t plane_pitch;
} pinlane_strided;

/**
 * Gets `user` and the buffer of `pinlane_buffer_alloc_async`. The function owns the buffer, and
 * frees it with `pinlane_buffer_free`. If `status` is not `OK`, the buffer is NULL, and
 * `pinlane_last_error()` returns the message.
 *
 * It runs on a thread of pinlane. It may call pinlane, and may block: other callbacks run on other
 * threads. It must not unwind (by a C++ exception or otherwise).
 */
typedef void (*pinlane_allocated)(void *user,
                                  pinlane_status status,
                                  struct pinlane_buffer *buffer);

/**
 * Called with `user`, the event (one of `PINLANE_LOG_*`; later releases may add some), and a
 * message that is valid until the function returns.
 *
 * It is called without locks, on any thread, including pinlane's own, and on several at once. It
 * must not unwind, must not call pinlane, and should return soon, because other work waits for the
 * thread.
 */
typedef void (*pinlane_log_callback)(void *user, int32_t event, const char *message);

/**
 * The layout of a tensor. Initialise with `PINLANE_DLPACK_OPTIONS_INIT`: one dimension of bytes,
 * the whole buffer.
 */
typedef struct pinlane_dlpack_options {
  /**
   * `sizeof(pinlane_dlpack_options)`.
   */
  size_t size;
  /**
   * The length of each dimension, in elements; NULL for one dimension, as long as the buffer: as
   * many elements as fit, packed if they are not a whole number of bytes.
   */
  const int64_t *shape;
  /**
   * The distance between neighbours in each dimension, in elements; NULL for elements without
   * gaps, with the last dimension innermost.
   */
  const int64_t *strides;
  /**
   * The number of dimensions; 0 with a `shape` is a tensor of one element.
   */
  int32_t ndim;
  /**
   * The type of the elements: `DLDataType`'s code, bits and lanes.
   */
  uint8_t code;
  /**
   * See `code`.
   */
  uint8_t bits;
  /**
   * See `code`.
   */
  uint16_t lanes;
  /**
   * The offset of the first element in bytes: a multiple of its size, if that is a whole number
   * of bytes.
   */
  size_t offset_bytes;
  /**
   * The device type of page-locked memory: `PINLANE_DLPACK_CPU` or `PINLANE_DLPACK_CUDA_HOST`.
   * Ignored for device memory.
   */
  int32_t device_type;
  /**
   * 0 or `PINLANE_DLPACK_READ_ONLY`.
   */
  uint32_t flags;
  /**
   * The stream of the consumer's own device work on the tensor, or NULL if it has none.
   */
  const struct pinlane_stream *stream;
} pinlane_dlpack_options;

/**
 * Options of an emulated machine. Initialise with `PINLANE_EMULATOR_OPTIONS_INIT`.
 */
typedef struct pinlane_emulator_options {
  /**
   * `sizeof(pinlane_emulator_options)`.
   */
  size_t size;
  /**
   * Decides everything that CUDA leaves open. The same seed gives the same run.
   */
  uint64_t seed;
  /**
   * Memory of each device, in bytes.
   */
  size_t memory_bytes;
  /**
   * One of `PINLANE_EXECUTION_*`.
   */
  int32_t execution;
  /**
   * 0, or some of `PINLANE_EMULATOR_*`.
   */
  uint32_t flags;
  /**
   * The most that one CUDA call page-locks, in bytes; 0: no limit. A larger request gets
   * `cudaErrorMemoryAllocation`, as on some systems.
   */
  size_t page_lock_limit_bytes;
  /**
   * NULL, or a run to repeat: a text of `pinlane_emulator_replay`, such as `12:B#3`. The machine
   * then takes the seed and the decisions from there, and ignores `seed` and `execution`.
   */
  const char *replay;
  /**
   * The approximate number of operations that the program enqueues, for `PINLANE_EXECUTION_PCT`;
   * 0: not known.
   */
  uint64_t operations;
  /**
   * For `PINLANE_EXECUTION_PCT`; 0 counts as 1.
   */
  uint32_t pct_depth;
  /**
   * 0.
   */
  uint32_t reserved;
  /**
   * How long a call may wait for one host function to return, in microseconds; 0: without limit.
   * After that time the machine assumes that the two wait for each other. That is a finding,
   * `Deadlock`, instead of a hang, and the device is lost with `cudaErrorLaunchTimeout`, so that
   * the program ends.
   */
  uint64_t host_function_limit_us;
} pinlane_emulator_options;

/**
 * Which runs `pinlane_explore` makes. Initialise with `PINLANE_EXPLORATION_INIT`.
 */
typedef struct pinlane_exploration {
  /**
   * `sizeof(pinlane_exploration)`.
   */
  size_t size;
  /**
   * The number of runs; 0: 100, or as many as the time limit allows.
   */
  uint64_t runs;
  /**
   * No run starts after this many milliseconds; 0: no limit.
   */
  uint64_t time_ms;
  /**
   * The first seed.
   */
  uint64_t seed;
  /**
   * How many more runs may be made to find a smaller one that fails.
   */
  uint64_t shrink_runs;
  /**
   * The options of each run's machine, or NULL. Their seed, execution and replay are ignored.
   */
  const struct pinlane_emulator_options *machine;
  /**
   * How many devices the machine has, 1 to 64.
   */
  int32_t devices;
  /**
   * 0, or some of `PINLANE_EXPLORE_*`.
   */
  uint32_t flags;
} pinlane_exploration;

/**
 * A program that `pinlane_explore` runs, with `user` and its own machine. It returns 0 if the run
 * succeeded. Otherwise it may write the reason to `message`, which has room for `capacity` bytes
 * with the NUL. It must not unwind (by a C++ exception or otherwise) or `longjmp` out of the call.
 */
typedef int32_t (*pinlane_explored_program)(void *user,
                                            struct pinlane_emulator *machine,
                                            char *message,
                                            size_t capacity);

/**
 * How an exploration ended. Initialise with `PINLANE_EXPLORED_INIT`.
 */
typedef struct pinlane_explored {
  /**
   * `sizeof(pinlane_explored)`.
   */
  size_t size;
  /**
   * The number of runs, up to the first that failed. Runs that made it smaller do not count.
   */
  uint64_t runs;
  /**
   * The seed of the smallest run found that fails; 0 if none does.
   */
  uint64_t seed;
  /**
   * The number of misuses of CUDA in that run.
   */
  size_t findings;
  /**
   * The number of decisions of that run that differ from an eager run.
   */
  size_t decisions;
  /**
   * 1 if a run failed, otherwise 0.
   */
  uint32_t failed;
  /**
   * 1 if no run failed and all requested runs were made, otherwise 0.
   */
  uint32_t complete;
} pinlane_explored;

/**
 * What is allocated and pending on an emulated machine. Initialise with
 * `PINLANE_EMULATOR_USAGE_INIT`.
 */
typedef struct pinlane_emulator_usage {
  /**
   * `sizeof(pinlane_emulator_usage)`.
   */
  size_t size;
  /**
   * Bytes of page-locked memory: allocated, or registered.
   */
  size_t host_bytes;
  /**
   * The same in blocks; a registered range is one block.
   */
  size_t host_blocks;
  /**
   * Blocks that were freed while pending operations named them. Their memory is never released.
   */
  size_t quarantined_blocks;
  /**
   * Bytes of device memory that no call has freed, on all devices.
   */
  size_t device_bytes;
  /**
   * The same in blocks.
   */
  size_t device_blocks;
  /**
   * Streams created and not destroyed.
   */
  size_t streams;
  /**
   * Events created and not destroyed.
   */
  size_t events;
  /**
   * Operations enqueued that have not run.
   */
  size_t pending_operations;
} pinlane_emulator_usage;

/**
 * One range of a file, and its destination. Set all members that you do not use to 0.
 */
typedef struct pinlane_file_range {
  /**
   * The offset of the range in the file, in bytes.
   */
  uint64_t offset;
  /**
   * Its length.
   */
  size_t bytes;
  /**
   * The destination in the caller's own device memory. NULL if it is `device_buffer`, or if
   * there are no bytes.
   */
  void *dst;
  /**
   * The device buffer that is the destination, or NULL.
   */
  struct pinlane_device_buffer *device_buffer;
  /**
   * The offset of the destination in `device_buffer`, in bytes.
   */
  size_t device_offset;
  /**
   * Must be 0.
   */
  uint64_t reserved;
} pinlane_file_range;

/**
 * A buffer that the caller's own work uses, and its access. One array lists both the buffers that
 * the work reads and those that it writes. Set all members that you do not use to 0.
 */
typedef struct pinlane_use {
  /**
   * The buffer in page-locked memory, or NULL.
   */
  struct pinlane_buffer *buffer;
  /**
   * The buffer in device memory, or NULL. Exactly one of the two is set.
   */
  struct pinlane_device_buffer *device_buffer;
  /**
   * `PINLANE_ACCESS_WRITE` or `PINLANE_ACCESS_READ`.
   */
  int32_t access;
  /**
   * Must be 0.
   */
  uint32_t flags;
  /**
   * Must be 0.
   */
  uint64_t reserved;
} pinlane_use;

/**
 * Options of a pool. Initialise with `PINLANE_POOL_OPTIONS_INIT`. 0 in a member means its default.
 */
typedef struct pinlane_pool_options {
  /**
   * `sizeof(pinlane_pool_options)`.
   */
  size_t size;
  /**
   * The budget: the most that the pool may page-lock at a time, in bytes; at least a page of
   * 4096. By default half of the machine's memory, or of what the process's control groups allow
   * if that is less; and while the system refuses to page-lock that much, what it allows.
   */
  size_t max_bytes;
  /**
   * The most that one thread caches, in bytes of free blocks; never more than a 32nd of the
   * budget. By default 16 MiB.
   */
  size_t thread_cache_bytes;
  /**
   * How many free bytes stay when memory is given back because of `high_watermark_bytes`; at
   * most that.
   */
  size_t low_watermark_bytes;
  /**
   * When more than this many bytes are free, not counting the caches of threads, the pool gives
   * memory back to the system. By default it does not.
   */
  size_t high_watermark_bytes;
  /**
   * Memory that has been free for this many microseconds goes back to the system. By default it
   * does not.
   */
  uint64_t idle_age_us;
  /**
   * `PINLANE_PAGE_LOCKING_REGISTER` or `PINLANE_PAGE_LOCKING_ALLOCATE`.
   */
  int32_t page_locking;
  /**
   * The most threads that touch new memory. By default one for each core, at most 16.
   */
  uint32_t growth_threads;
  /**
   * 0, or some of `PINLANE_POOL_*`.
   */
  uint32_t flags;
  /**
   * Must be 0.
   */
  uint32_t reserved;
} pinlane_pool_options;

/**
 * Statistics of a pool. Sizes are in bytes of blocks, times in nanoseconds. Initialise with
 * `PINLANE_POOL_STATS_INIT`.
 */
typedef struct pinlane_pool_stats {
  /**
   * `sizeof(pinlane_pool_stats)`.
   */
  size_t size;
  /**
   * The budget. If it is the default one, and the system has just refused to page-lock more,
   * what the system allows.
   */
  size_t max_bytes;
  /**
   * Page-locked now: live, cached, in-flight and quarantined blocks, the unused ends of slabs,
   * and memory that is being page-locked or given back at this moment.
   */
  size_t committed_bytes;
  /**
   * The most that `committed_bytes` has been.
   */
  size_t peak_bytes;
  /**
   * In buffers that exist, and allocated by address.
   */
  size_t live_bytes;
  /**
   * Free, and ready to be reused.
   */
  size_t cached_bytes;
  /**
   * The part of `cached_bytes` in the caches of threads.
   */
  size_t thread_bytes;
  /**
   * Freed, but a device may still use them.
   */
  size_t in_flight_bytes;
  /**
   * Lost: nothing proved that the device is done with them, or the system did not take them
   * back.
   */
  size_t quarantined_bytes;
  /**
   * Allocations that reused a free block.
   */
  uint64_t hits;
  /**
   * The part of `hits` that the thread's own cache served.
   */
  uint64_t thread_hits;
  /**
   * Allocations for which no block was free.
   */
  uint64_t misses;
  /**
   * How often new memory was page-locked.
   */
  uint64_t growths;
  /**
   * How long that took in total.
   */
  uint64_t growths_total_ns;
  /**
   * The longest time.
   */
  uint64_t growths_longest_ns;
  /**
   * Allocations that waited because the budget allowed no new memory.
   */
  uint64_t waits;
  /**
   * Their waiting time in total.
   */
  uint64_t waits_total_ns;
  /**
   * The longest waiting time.
   */
  uint64_t waits_longest_ns;
  /**
   * Times that memory was given back to the system.
   */
  uint64_t trims;
  /**
   * Growths in which registering failed and the CUDA runtime allocated the memory.
   */
  uint64_t growths_not_registered;
  /**
   * Growths in which the system refused huge pages.
   */
  uint64_t growths_small_pages;
  /**
   * Growths whose memory could not be bound to the device's NUMA node.
   */
  uint64_t growths_other_node;
  /**
   * Threads that have a cache.
   */
  size_t threads;
  /**
   * Requests in the queue.
   */
  size_t waiting;
  /**
   * Growths that the system refused in one call and that were registered in parts.
   */
  uint64_t growths_in_parts;
} pinlane_pool_stats;

/**
 * Statistics of one block size of a pool. Counts are in blocks.
 */
typedef struct pinlane_class_stats {
  /**
   * The size of a block.
   */
  size_t block_bytes;
  /**
   * All blocks: live, cached, in flight and quarantined.
   */
  size_t blocks;
  /**
   * In buffers that exist, and allocated by address.
   */
  size_t live;
  /**
   * Free, and ready to be reused.
   */
  size_t cached;
  /**
   * Freed, but a device may still use them.
   */
  size_t in_flight;
  /**
   * Lost: nothing proved that the device is done with them.
   */
  size_t quarantined;
  /**
   * How often memory was page-locked for this size.
   */
  uint64_t growths;
  /**
   * 0.
   */
  uint64_t reserved;
} pinlane_class_stats;

/**
 * One slice of a batch in host memory. Set all members that you do not use to 0.
 */
typedef struct pinlane_host_slice {
  /**
   * The name by which the consumer finds it, or NULL: its number in the batch, such as "0".
   */
  const char *name;
  /**
   * Pageable memory, which does not change until `release`. NULL requests page-locked room,
   * which `fill` writes.
   */
  const void *data;
  /**
   * The size in bytes.
   */
  size_t bytes;
  /**
   * The size of an element, or 0: in the device's memory the slice begins at a multiple of it,
   * and of 256.
   */
  size_t element_bytes;
  /**
   * Must be 0.
   */
  uint64_t reserved;
} pinlane_host_slice;

/**
 * The functions of the program that make batches, called by threads of pinlane. Initialise with
 * `PINLANE_PRODUCER_INIT`.
 *
 * The functions return 0, or their own code when they fail: the consumer gets the status
 * `PRODUCER` in place of the batch, and the code by `pinlane_last_producer_error`. The message
 * contains the message of the function's last failed pinlane call, or that of
 * `pinlane_set_last_error`. Then `next` is called for the next batch.
 *
 * The functions may call pinlane and may block. They must not unwind (by a C++ exception or
 * otherwise). They are not called after `pinlane_prefetch_free` has returned.
 */
typedef struct pinlane_producer {
  /**
   * `sizeof(pinlane_producer)`.
   */
  size_t size;
  /**
   * The first argument of every function.
   */
  void *user;
  /**
   * Begins the next batch: writes to `item` what the other functions get for it. Called by one
   * thread at a time, but not always by the same. Returns `PINLANE_STATUS_END` if there are no
   * more batches, and is then not called again.
   */
  int32_t (*next)(void *user, void **item);
  /**
   * Describes the batch: writes an array of `count` slices to `slices`, which does not change
   * until `release`. Called at most once for each batch, for several batches at once.
   */
  int32_t (*describe)(void *user,
                      void *item,
                      const struct pinlane_host_slice **slices,
                      size_t *count);
  /**
   * Writes the slices without `data`: number `i` to `room[i]`, which is NULL for the others.
   * `room` has as many elements as there are slices. Called at most once for each batch that has
   * such slices, for several batches at once. May be NULL if there are none.
   */
  int32_t (*fill)(void *user, void *item, void *const *room);
  /**
   * Ends the batch: its slices may be reused. Called once for each batch that `next` has begun,
   * even after an error; for several batches at once. May be NULL.
   */
  void (*release)(void *user, void *item);
} pinlane_producer;

/**
 * Options of a pipeline. Initialise with `PINLANE_PREFETCH_OPTIONS_INIT`. 0 in a member means its
 * default.
 */
typedef struct pinlane_prefetch_options {
  /**
   * `sizeof(pinlane_prefetch_options)`.
   */
  size_t size;
  /**
   * How many batches may be ready or in progress: 1 to 65536, by default 3. Batches that the
   * consumer holds do not count.
   */
  uint32_t depth;
  /**
   * How many threads pull, fill and copy: 1 to 256, by default 2. More help if the producer's
   * functions take long.
   */
  uint32_t workers;
  /**
   * 0, or some of `PINLANE_PREFETCH_*`.
   */
  uint32_t flags;
  /**
   * Must be 0.
   */
  uint32_t reserved;
} pinlane_prefetch_options;

/**
 * Gets `user` and the batch of `pinlane_prefetch_next_async`. The function owns the batch, and
 * frees it with `pinlane_device_buffer_free`. If `status` is not `OK`, the batch is NULL, and
 * `pinlane_last_error()` returns the message.
 *
 * It runs on a thread of pinlane. It may call pinlane, and may block: other callbacks run on other
 * threads. It must not unwind (by a C++ exception or otherwise).
 */
typedef void (*pinlane_prefetched)(void *user,
                                   pinlane_status status,
                                   struct pinlane_device_buffer *batch);

/**
 * The progress of a pipeline. Initialise with `PINLANE_PREFETCH_PROGRESS_INIT`.
 */
typedef struct pinlane_prefetch_progress {
  /**
   * `sizeof(pinlane_prefetch_progress)`.
   */
  size_t size;
  /**
   * Batches that the producer has begun, including failed ones and a dropped last one.
   */
  uint64_t produced;
  /**
   * Batches whose copy has been enqueued.
   */
  uint64_t uploaded;
  /**
   * Batches that the consumer has received.
   */
  uint64_t yielded;
  /**
   * The bytes of all slices of the uploaded batches.
   */
  uint64_t bytes;
} pinlane_prefetch_progress;

/**
 * The page-locked memory through which copies of pageable memory go. Initialise with
 * `PINLANE_STAGING_OPTIONS_INIT`. 0 in a member means its default.
 */
typedef struct pinlane_staging_options {
  /**
   * `sizeof(pinlane_staging_options)`.
   */
  size_t size;
  /**
   * The most page-locked memory for large copies, in bytes. Small copies take up to half as much
   * in addition. By default 32 MiB, page-locked on demand.
   */
  size_t ring_bytes;
  /**
   * The size of a slot, in bytes: the largest portion that the copy engine gets at once. By
   * default 4 MiB.
   */
  size_t slot_bytes;
  /**
   * The first portion of a short upload, in bytes. A longer upload begins with 1/32 of its
   * length. Portions grow to 1/8 of the copy, and to at most a slot. By default 256 KiB.
   */
  size_t first_bytes;
  /**
   * How many bytes a thread copies at a time. By default 256 KiB.
   */
  size_t unit_bytes;
  /**
   * Copies of at most this many bytes go through one block of page-locked memory, without other
   * threads. By default 64 KiB.
   */
  size_t direct_bytes;
  /**
   * Uploads of at most this many bytes are written to their slots past the cache. By default 64
   * MiB.
   */
  size_t streaming_bytes;
  /**
   * 0, or some of `PINLANE_STAGING_*`.
   */
  uint32_t flags;
  /**
   * Must be 0.
   */
  uint32_t reserved;
} pinlane_staging_options;

/**
 * The threads that help callers to copy pageable memory. Initialise with
 * `PINLANE_COPY_TEAM_OPTIONS_INIT`. 0 in a member means its default.
 */
typedef struct pinlane_copy_team_options {
  /**
   * `sizeof(pinlane_copy_team_options)`.
   */
  size_t size;
  /**
   * The cores that the threads are pinned to, in turns; NULL: the system chooses.
   */
  const uint32_t *cores;
  /**
   * The number of `cores`.
   */
  size_t core_count;
  /**
   * How long a thread without work spins before it sleeps, in microseconds; at most 1000000. By
   * default 200.
   */
  uint64_t spin_us;
  /**
   * The number of threads, at most 256. By default one less than the cores, at most 63. They
   * start when they are first needed.
   */
  uint32_t threads;
  /**
   * How many of them help with one copy of memory. The others help copies of other devices, and
   * read files. By default 7.
   */
  uint32_t copying;
  /**
   * 0, or some of `PINLANE_COPY_TEAM_*`.
   */
  uint32_t flags;
  /**
   * Must be 0.
   */
  uint32_t reserved;
} pinlane_copy_team_options;

/**
 * Options of a stream. Initialise with `PINLANE_STREAM_OPTIONS_INIT`.
 */
typedef struct pinlane_stream_options {
  /**
   * `sizeof(pinlane_stream_options)`.
   */
  size_t size;
  /**
   * Of kernels that wait for room on the device, those with lower numbers run first; 0 is the
   * default. Copies by the copy engine have no priority. Clamped to the device's range.
   */
  int32_t priority;
  /**
   * 0 or `PINLANE_STREAM_BLOCKING`.
   */
  uint32_t flags;
} pinlane_stream_options;

/**
 * A function that a stream calls, with `user`. It must not unwind (by a C++ exception or
 * otherwise).
 */
typedef void (*pinlane_host_function)(void *user);

/**
 * Called when an operation is complete, with `user`. `status` is `OK`, `CANCELLED`, or the error
 * of the operation or the device, whose message `pinlane_last_error()` returns.
 *
 * It runs on a thread of pinlane. It may call pinlane, and may block: other callbacks run on other
 * threads. It must not unwind (by a C++ exception or otherwise).
 */
typedef void (*pinlane_completed)(void *user, pinlane_status status);

/**
 * The call did what it promises.
 */
#define PINLANE_STATUS_OK 0

/**
 * An argument is outside what the function accepts.
 */
#define PINLANE_STATUS_INVALID_VALUE 1

/**
 * The lengths of a copy's two sides, or of a pattern and its range, do not fit.
 */
#define PINLANE_STATUS_LENGTH_MISMATCH 2

/**
 * A range does not lie inside its buffer.
 */
#define PINLANE_STATUS_OUT_OF_RANGE 3

/**
 * The device still uses the buffer, or no block is free. Only `try_` functions say so.
 */
#define PINLANE_STATUS_NOT_READY 4

/**
 * Live buffers take the pool's whole budget.
 */
#define PINLANE_STATUS_BUDGET_EXHAUSTED 5

/**
 * The system has no more page-locked memory to give.
 */
#define PINLANE_STATUS_OUT_OF_HOST_MEMORY 6

/**
 * The device has no more memory to give.
 */
#define PINLANE_STATUS_OUT_OF_DEVICE_MEMORY 7

/**
 * No usable device: no CUDA in this build, no driver, or no device of that number.
 */
#define PINLANE_STATUS_NO_DEVICE 8

/**
 * Not supported by this build, device or stream.
 */
#define PINLANE_STATUS_UNSUPPORTED 9

/**
 * The stream belongs to another device or driver than the buffers.
 */
#define PINLANE_STATUS_WRONG_DEVICE 10

/**
 * The per-thread default stream was used on a thread that did not open it.
 */
#define PINLANE_STATUS_WRONG_THREAD 11

/**
 * The stream is being captured into a graph.
 */
#define PINLANE_STATUS_STREAM_CAPTURING 12

/**
 * The process is a forked child of the one that opened the device.
 */
#define PINLANE_STATUS_FORKED_PROCESS 13

/**
 * The device is lost: a sticky CUDA error.
 */
#define PINLANE_STATUS_DEVICE_LOST 14

/**
 * At this moment another thread uses the buffer in a way that conflicts.
 */
#define PINLANE_STATUS_BUSY 15

/**
 * A handle is NULL, freed, of another type, or never was one.
 */
#define PINLANE_STATUS_INVALID_HANDLE 16

/**
 * A panic was caught: a bug in pinlane.
 */
#define PINLANE_STATUS_PANIC 17

/**
 * Another failure that the CUDA runtime reported: see `pinlane_last_cuda_error`.
 */
#define PINLANE_STATUS_CUDA 18

/**
 * The call waited for as long as it was allowed to.
 */
#define PINLANE_STATUS_TIMED_OUT 19

/**
 * A file could not be opened or read, or ended early.
 */
#define PINLANE_STATUS_IO 20

/**
 * There is nothing more to get.
 */
#define PINLANE_STATUS_END 21

/**
 * The program's own producer failed: see `pinlane_last_producer_error`.
 */
#define PINLANE_STATUS_PRODUCER 22

/**
 * The call was withdrawn before it had an outcome.
 */
#define PINLANE_STATUS_CANCELLED 23

/**
 * Makes all `count` copies of `copies`, from host memory, pageable or page-locked, to the stream's
 * device. Returns when pageable memory may be reused; the ticket says when everything has arrived.
 * Ordered on `stream`, and after conflicting uses of the buffers on other streams. The copies have
 * no order among themselves, so their destinations must not overlap. `options` may be NULL:
 * pinlane chooses the route that should be fastest. `copies` may be NULL if `count` is 0; `ticket`
 * may be NULL.
 *
 * Does not block if all sources are buffers or `pinned`. With pageable memory it blocks as
 * `pinlane_upload_slice`. Memory of a pool that is named by its address is copied as page-locked
 * memory, and the call blocks until the device has read it: name it as `pinned` instead, or name
 * its buffer.
 *
 * Statuses: `INVALID_HANDLE`, `OUT_OF_RANGE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`,
 * `FORKED_PROCESS`, `WRONG_THREAD`; `INVALID_VALUE` if destinations overlap, a pointer is NULL, a
 * side is named twice, or `pinned` memory does not belong to a pool, or for options of an unknown
 * size, route or flag; `UNSUPPORTED` if that route is not possible for these copies: nothing was
 * enqueued. `CUDA`, `DEVICE_LOST`, and `OUT_OF_HOST_MEMORY` if no memory can be page-locked for
 * the pageable copies: the contents of all destinations are unspecified.
 *
 * # Safety
 *
 * - `copies` is NULL or points to an array of `count` elements.
 * - Host memory named by its address is readable, and not written, until the call returns.
 * - `pinned` memory is not freed before the call returns, and not written until the copies are
 *   complete.
 * - Device memory named by its address is memory of the stream's device, and stays allocated until
 *   the copies are complete.
 * - `options` is NULL or points to an initialised struct whose `size` member is right.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_upload_batch(const struct pinlane_stream *stream,
                                    const struct pinlane_copy *copies,
                                    size_t count,
                                    const struct pinlane_batch_options *options,
                                    struct pinlane_ticket **ticket);

/**
 * Makes all `count` copies of `copies`, from the stream's device to host memory, pageable or
 * page-locked. Returns when all data for memory that is named by its address has arrived; memory
 * of a pool is then written as page-locked memory. The ticket says when the rest has arrived;
 * `pinlane_buffer_read` waits for it. Does not block if all destinations are buffers or `pinned`.
 * Ordered as `pinlane_upload_batch`; destinations must not overlap. `options` and `ticket` may be
 * NULL; `copies` may be NULL if `count` is 0.
 *
 * Statuses: as for `pinlane_upload_batch`.
 *
 * # Safety
 *
 * - `copies` is NULL or points to an array of `count` elements.
 * - Host memory named by its address is writable, and no other code accesses it until the call
 *   returns.
 * - `pinned` memory is not freed before the call returns, and not accessed until the copies are
 *   complete.
 * - Device memory named by its address is memory of the stream's device, and stays allocated until
 *   the copies are complete.
 * - `options` is NULL or points to an initialised struct whose `size` member is right.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_download_batch(const struct pinlane_stream *stream,
                                      const struct pinlane_copy *copies,
                                      size_t count,
                                      const struct pinlane_batch_options *options,
                                      struct pinlane_ticket **ticket);

/**
 * As `pinlane_download_batch`, and calls `landed` for each copy as soon as it has arrived, while
 * others are in flight. Blocks until all have arrived, even if `landed` asked not to be called
 * again.
 *
 * Copies to pageable memory arrive in order, and so do copies to page-locked memory, which come
 * first.
 *
 * Statuses: as for `pinlane_upload_batch`; `INVALID_VALUE` if `landed` is NULL. If the call fails,
 * the copies that `landed` was called for have arrived nevertheless.
 *
 * # Safety
 *
 * - `copies` is NULL or points to an array of `count` elements.
 * - Host memory named by its address is writable. Until the call returns, no other code accesses
 *   or frees it or `pinned` memory; `landed` may read the data that it is called with.
 * - Device memory named by its address is memory of the stream's device.
 * - `landed` may be called with `user`, and does not unwind.
 */
pinlane_status pinlane_download_batch_each(const struct pinlane_stream *stream,
                                           const struct pinlane_copy *copies,
                                           size_t count,
                                           pinlane_landed landed,
                                           void *user);

/**
 * Makes all `count` copies of `copies`, from device memory to device memory: of one device or,
 * between buffers, of two; `stream` belongs to one of them. Does not block. Ordered as
 * `pinlane_upload_batch`. No destination may overlap another one or a source. `ticket` may be
 * NULL; `copies` may be NULL if `count` is 0.
 *
 * Statuses: as for `pinlane_upload_batch`.
 *
 * # Safety
 *
 * - `copies` is NULL or points to an array of `count` elements.
 * - Memory named by its address is memory of the stream's device, and stays allocated until the
 *   copies are complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_copy_batch(const struct pinlane_stream *stream,
                                  const struct pinlane_device_copy *copies,
                                  size_t count,
                                  struct pinlane_ticket **ticket);

/**
 * Makes a list of the `count` pairs of `pairs` and writes it to `list`. The caller frees it with
 * `pinlane_pairs_free`. `options` choose a route, as for `pinlane_upload_batch`, and may be NULL;
 * `pairs` may be NULL if `count` is 0. The array may be freed when the call returns. Does not
 * block, and enqueues nothing.
 *
 * The first copy in a direction checks the list and lays out what the kernel reads (24 bytes of
 * page-locked memory a pair, and as many for every 16 KiB of a longer one); the others only
 * enqueue. Between the copies the buffers can be used as usual. They can also be freed as usual:
 * copies of the list then fail. `pinned` memory has no handle, so pinlane cannot find that it was
 * freed: after that, only free the list.
 *
 * Statuses: `INVALID_HANDLE`, `OUT_OF_RANGE`, `BUSY`, `FORKED_PROCESS`; `INVALID_VALUE` if a
 * pointer is NULL, a pair does not name two sides, or names one twice, or `pinned` memory does not
 * belong to a pool, and for options of an unknown size, route or flag.
 *
 * # Safety
 *
 * - `pairs` is NULL or points to an array of `count` elements.
 * - `pinned` memory is not freed before the call returns.
 * - `options` is NULL or points to an initialised struct whose `size` member is right.
 * - `list` is NULL or points to a variable.
 */
pinlane_status pinlane_pairs_create(const struct pinlane_pair *pairs,
                                    size_t count,
                                    const struct pinlane_batch_options *options,
                                    struct pinlane_pairs **list);

/**
 * Copies the page-locked side of every pair to its device side, which is memory of the stream's
 * device. Does not block. Ordered on `stream`, and after conflicting uses of the buffers on other
 * streams. The copies have no order among themselves. `ticket`, for all of them, may be NULL.
 *
 * Statuses: `INVALID_HANDLE`, also if a buffer of a pair was freed; `BUSY`, `WRONG_DEVICE`,
 * `STREAM_CAPTURING`, `FORKED_PROCESS`, `WRONG_THREAD`; `INVALID_VALUE` if the device sides of two
 * pairs overlap; `UNSUPPORTED` if the route of the list is not possible: nothing was enqueued.
 * `CUDA`, `DEVICE_LOST`, and `OUT_OF_HOST_MEMORY` if no memory can be page-locked for what the
 * kernel reads: the contents of all device sides are unspecified.
 *
 * # Safety
 *
 * - `pinned` memory of the list was not freed since the list was made, and is not freed before the
 *   call returns. It is not written until the copies are complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_upload_pairs(const struct pinlane_stream *stream,
                                    struct pinlane_pairs *pairs,
                                    struct pinlane_ticket **ticket);

/**
 * As `pinlane_upload_pairs`, from the device side of every pair to its page-locked side:
 * `pinlane_buffer_read` waits for the copies.
 *
 * Statuses: as for `pinlane_upload_pairs`; `INVALID_VALUE` if the page-locked sides of two pairs
 * overlap.
 *
 * # Safety
 *
 * - `pinned` memory of the list was not freed since the list was made, and is not freed before the
 *   call returns. It is not accessed until the copies are complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_download_pairs(const struct pinlane_stream *stream,
                                      struct pinlane_pairs *pairs,
                                      struct pinlane_ticket **ticket);

/**
 * Frees the list; NULL is a no-op. Returns at once, even in the middle of a copy. Does not change
 * the buffers.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a list of pairs.
 */
pinlane_status pinlane_pairs_free(struct pinlane_pairs *pairs);

/**
 * Copies parts of the source of `layer`, in host memory, to parts of its destination, in device
 * memory. `parts` says where they lie. The bytes between them are left alone.
 *
 * A call costs less than `pinlane_upload_batch` for as many copies, because pinlane makes no list
 * of them. Does not block if the source is a part of a `buffer` or `pinned`; other memory may be
 * reused when the call returns. Ordered on `stream`, and after conflicting uses of the buffers on
 * other streams, as a use from the first part to the end of the last one. `options` may be NULL:
 * pinlane chooses the route that should be fastest. `ticket` may be NULL.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
 * `WRONG_THREAD`; `OUT_OF_RANGE` if a part does not lie in its side, or a side not in its buffer;
 * `INVALID_VALUE` if parts of the destination overlap, a pointer is NULL, a side is named twice or
 * not at all, or a `pinned` one is not in memory of a pool, or for options of an unknown size,
 * route or flag; `UNSUPPORTED` if that route is not possible: nothing was enqueued. The message
 * has the number of the part. `CUDA`, `DEVICE_LOST`, and `OUT_OF_HOST_MEMORY` if no memory can be
 * page-locked: the contents of the destination are unspecified.
 *
 * # Safety
 *
 * - `layer` and `parts` are NULL or point to a struct.
 * - The arrays of `parts` are NULL or have `count` elements, which are not written until the call
 *   returns.
 * - Host memory named by its address is readable, and not written, until the call returns.
 * - `pinned` memory is not freed before the call returns, and not written until the copy is
 *   complete.
 * - Device memory named by its address is memory of the stream's device, and stays allocated until
 *   the copy is complete.
 * - `options` is NULL or points to an initialised struct whose `size` member is right.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_upload_parts(const struct pinlane_stream *stream,
                                    const struct pinlane_layer *layer,
                                    const struct pinlane_parts *parts,
                                    const struct pinlane_batch_options *options,
                                    struct pinlane_ticket **ticket);

/**
 * As `pinlane_upload_parts`, from parts in device memory to parts in host memory.
 *
 * Does not block if the destination is a part of a `buffer` or `pinned`: `pinlane_buffer_read`
 * waits for the parts, and the ticket says when they have arrived. In other memory they have
 * arrived when the call returns.
 *
 * Statuses: as for `pinlane_upload_parts`.
 *
 * # Safety
 *
 * - `layer` and `parts` are NULL or point to a struct.
 * - The arrays of `parts` are NULL or have `count` elements, which are not written until the call
 *   returns.
 * - Host memory named by its address is writable, and no other code accesses it until the call
 *   returns.
 * - `pinned` memory is not freed before the call returns, and not accessed until the copy is
 *   complete.
 * - Device memory named by its address is memory of the stream's device, and stays allocated until
 *   the copy is complete.
 * - `options` is NULL or points to an initialised struct whose `size` member is right.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_download_parts(const struct pinlane_stream *stream,
                                      const struct pinlane_layer *layer,
                                      const struct pinlane_parts *parts,
                                      const struct pinlane_batch_options *options,
                                      struct pinlane_ticket **ticket);

/**
 * Gathers rows of a table in host memory: row `i` of the layer's destination, on the device, gets
 * the row of its source whose number is `indices[i]`. A row has as many bytes as the destination
 * has for each number. Numbers may be repeated.
 *
 * Does not block if the table is a part of a `buffer` or `pinned`; other memory may be reused when
 * the call returns. Ordered on `stream`, and after conflicting uses of the buffers on other
 * streams, as a use of the whole table. If the table is pageable and the numbers are on the
 * device, the call also waits for the numbers. `ticket` may be NULL.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
 * `WRONG_THREAD`; `OUT_OF_RANGE` if a number in host memory is not in the table, or a part not in
 * its buffer; `LENGTH_MISMATCH` if a length is not a whole number of rows; `INVALID_VALUE` if a
 * pointer is NULL, a table or the numbers are named twice or not at all, a `pinned` table is not
 * in memory of a pool, or the numbers are in the buffer that is written, and for a struct of an
 * unknown size, kind or flag: nothing was enqueued. `CUDA`, `DEVICE_LOST`, and
 * `OUT_OF_HOST_MEMORY` if no memory can be page-locked: the contents of the destination are
 * unspecified.
 *
 * # Safety
 *
 * - `layer` is NULL or points to a struct.
 * - `indices` is NULL or points to an initialised struct whose `size` member is right.
 * - Host memory that they name by its address is readable, and not written, until the call
 *   returns.
 * - `pinned` memory is not freed before the call returns, and not written until the copy is
 *   complete.
 * - Device memory named by its address is memory of the stream's device, and stays allocated until
 *   the copy is complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_upload_rows(const struct pinlane_stream *stream,
                                   const struct pinlane_layer *layer,
                                   const struct pinlane_indices *indices,
                                   struct pinlane_ticket **ticket);

/**
 * Scatters rows to a table in host memory: the row of the layer's destination whose number is
 * `indices[i]` gets row `i` of its source, on the device. A row has as many bytes as the source
 * has for each number. No row of the table may be named twice.
 *
 * Does not block if the table is a part of a `buffer` or `pinned`: `pinlane_buffer_read` waits for
 * the rows, and the ticket says when they have arrived. In other memory they have arrived when the
 * call returns. Ordered as `pinlane_upload_rows`. `ticket` may be NULL.
 *
 * Statuses: as for `pinlane_upload_rows`; `INVALID_VALUE` if a number in host memory is repeated:
 * nothing was enqueued.
 *
 * # Safety
 *
 * - `layer` is NULL or points to a struct.
 * - `indices` is NULL or points to an initialised struct whose `size` member is right.
 * - Until the call returns, numbers in host memory are readable and not written. A table in host
 *   memory that is named by its address is writable, and no other code accesses it.
 * - `pinned` memory is not freed before the call returns, and not accessed until the copy is
 *   complete.
 * - Device memory named by its address is memory of the stream's device, and stays allocated until
 *   the copy is complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_download_rows(const struct pinlane_stream *stream,
                                     const struct pinlane_layer *layer,
                                     const struct pinlane_indices *indices,
                                     struct pinlane_ticket **ticket);

/**
 * Copies blocks of the tables of `count` layers, from host memory to the stream's device: in each
 * layer, block `to[i]` of the destination gets block `from[i]` of the source. A block has
 * `block_bytes` bytes. Each table is a whole number of blocks, the same in all layers.
 * Destinations must not overlap, and no block may be written twice.
 *
 * `from` or `to` may be NULL: all blocks in order, as many as the other one names. `layers` may be
 * NULL if `count` is 0; `ticket` may be NULL. Blocks, and is ordered, as `pinlane_upload_rows`.
 *
 * Statuses: as for `pinlane_upload_rows`; `LENGTH_MISMATCH` if `from` and `to` do not have the
 * same number of blocks; `INVALID_VALUE` if a number of `to` in host memory is repeated, or if
 * destinations overlap: nothing was enqueued.
 *
 * # Safety
 *
 * - `layers` is NULL or points to an array of `count` elements.
 * - `from` and `to` are NULL or point to initialised structs whose `size` members are right.
 * - Host memory that they name by its address is readable, and not written, until the call
 *   returns.
 * - `pinned` memory is not freed before the call returns, and not written until the copy is
 *   complete.
 * - Device memory named by its address is memory of the stream's device, and stays allocated until
 *   the copy is complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_upload_blocks(const struct pinlane_stream *stream,
                                     const struct pinlane_layer *layers,
                                     size_t count,
                                     size_t block_bytes,
                                     const struct pinlane_indices *from,
                                     const struct pinlane_indices *to,
                                     struct pinlane_ticket **ticket);

/**
 * As `pinlane_upload_blocks`, from the stream's device to host memory. Blocks as
 * `pinlane_download_rows`.
 *
 * Statuses: as for `pinlane_upload_blocks`.
 *
 * # Safety
 *
 * - `layers` is NULL or points to an array of `count` elements.
 * - `from` and `to` are NULL or point to initialised structs whose `size` members are right.
 * - Until the call returns, numbers in host memory are readable and not written. Tables in host
 *   memory that are named by their addresses are writable, and no other code accesses them.
 * - `pinned` memory is not freed before the call returns, and not accessed until the copy is
 *   complete.
 * - Device memory named by its address is memory of the stream's device, and stays allocated until
 *   the copy is complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_download_blocks(const struct pinlane_stream *stream,
                                       const struct pinlane_layer *layers,
                                       size_t count,
                                       size_t block_bytes,
                                       const struct pinlane_indices *from,
                                       const struct pinlane_indices *to,
                                       struct pinlane_ticket **ticket);

/**
 * Copies rows that lie a pitch apart in the source of `layer`, in host memory, to rows of its
 * destination, in device memory: row by row, and plane by plane. The bytes between the rows are
 * left alone. `source` and `destination` say where the rows lie; NULL for a side without gaps,
 * whose bytes are all copied.
 *
 * Does not block if the source is a part of a `buffer` or `pinned`; other memory may be reused
 * when the call returns. Ordered on `stream`, and after conflicting uses of the buffers on other
 * streams, as a use of the rows without the gaps between them. `ticket` may be NULL.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
 * `WRONG_THREAD`; `OUT_OF_RANGE` if rows do not lie in their side, or a side not in its buffer;
 * `LENGTH_MISMATCH` unless both sides have rows of the same shape, or one has no gaps and as many
 * bytes; `INVALID_VALUE` if rows of a side overlap, a pointer is NULL, a side is named twice or
 * not at all, or a `pinned` one is not in memory of a pool: nothing was enqueued. `CUDA`,
 * `DEVICE_LOST`, and `OUT_OF_HOST_MEMORY` if no memory can be page-locked: the contents of the
 * destination are unspecified.
 *
 * # Safety
 *
 * - `layer` is NULL or points to a struct. `source` and `destination` are NULL or point to one.
 * - Host memory named by its address is readable, and not written, until the call returns.
 * - `pinned` memory is not freed before the call returns, and not written until the copy is
 *   complete.
 * - Device memory named by its address is memory of the stream's device, and stays allocated until
 *   the copy is complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_upload_strided(const struct pinlane_stream *stream,
                                      const struct pinlane_layer *layer,
                                      const struct pinlane_strided *source,
                                      const struct pinlane_strided *destination,
                                      struct pinlane_ticket **ticket);

/**
 * As `pinlane_upload_strided`, from rows in device memory to rows in host memory.
 *
 * Does not block if the destination is a part of a `buffer` or `pinned`: `pinlane_buffer_read`
 * waits for the rows, and the ticket says when they have arrived. In other memory they have
 * arrived when the call returns.
 *
 * Statuses: as for `pinlane_upload_strided`.
 *
 * # Safety
 *
 * - `layer` is NULL or points to a struct. `source` and `destination` are NULL or point to one.
 * - Host memory named by its address is writable, and no other code accesses it until the call
 *   returns.
 * - `pinned` memory is not freed before the call returns, and not accessed until the copy is
 *   complete.
 * - Device memory named by its address is memory of the stream's device, and stays allocated until
 *   the copy is complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_download_strided(const struct pinlane_stream *stream,
                                        const struct pinlane_layer *layer,
                                        const struct pinlane_strided *source,
                                        const struct pinlane_strided *destination,
                                        struct pinlane_ticket **ticket);

/**
 * As `pinlane_upload_strided`, between two device buffers, of one device or of two; `stream`
 * belongs to one of them. The rows lie in `source_bytes` bytes of `source`, from `source_offset`
 * on, as `source_rows` says, and in those of `destination`. Does not block.
 *
 * Statuses: as for `pinlane_upload_strided`; `INVALID_VALUE` if both are the same buffer.
 *
 * # Safety
 *
 * - `source_rows` and `destination_rows` are NULL or point to a struct.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_copy_strided(const struct pinlane_stream *stream,
                                                  const struct pinlane_device_buffer *source,
                                                  size_t source_offset,
                                                  size_t source_bytes,
                                                  const struct pinlane_strided *source_rows,
                                                  struct pinlane_device_buffer *destination,
                                                  size_t destination_offset,
                                                  size_t destination_bytes,
                                                  const struct pinlane_strided *destination_rows,
                                                  struct pinlane_ticket **ticket);

/**
 * Allocates `bytes` of page-locked memory, aligned to at least 256, and writes the buffer to
 * `buffer`. The caller frees it with `pinlane_buffer_free`. The contents are unspecified. Blocks
 * while it page-locks new memory and, when the budget is spent, until the device is done with a
 * freed buffer.
 *
 * Statuses: `INVALID_HANDLE`, `BUDGET_EXHAUSTED`, `OUT_OF_HOST_MEMORY`, `FORKED_PROCESS`;
 * `INVALID_VALUE` if `buffer` is NULL or the size overflows.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_alloc(const struct pinlane_pool *pool,
                                    size_t bytes,
                                    struct pinlane_buffer **buffer);

/**
 * Writes the pool that the buffer came from to `pool`. The caller frees it with
 * `pinlane_pool_free`.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`, `BUSY`; `INVALID_VALUE` if `pool` is NULL, the
 * memory is the caller's own, or all handles of the pool were freed.
 *
 * # Safety
 *
 * - `pool` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_pool(const struct pinlane_buffer *buffer,
                                   struct pinlane_pool **pool);

/**
 * As `pinlane_buffer_alloc`, with all bytes zero.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_alloc_zeroed(const struct pinlane_pool *pool,
                                           size_t bytes,
                                           struct pinlane_buffer **buffer);

/**
 * As `pinlane_buffer_alloc`, with the first byte at a multiple of `alignment`: a power of two, at
 * most 2 MiB. Status `INVALID_VALUE` for any other alignment.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_alloc_aligned(const struct pinlane_pool *pool,
                                            size_t bytes,
                                            size_t alignment,
                                            struct pinlane_buffer **buffer);

/**
 * As `pinlane_buffer_alloc`, but when the budget is spent it waits, for at most `microseconds`,
 * until there is room, even for buffers that other threads free. Requests are served in the order
 * in which they came. Status `TIMED_OUT`; `BUDGET_EXHAUSTED` only if the request is larger than
 * the budget, or than what is left of it beside quarantined memory.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_alloc_timeout(const struct pinlane_pool *pool,
                                            size_t bytes,
                                            uint64_t microseconds,
                                            struct pinlane_buffer **buffer);

/**
 * As `pinlane_buffer_alloc`, but only from memory that is page-locked already: it does not
 * page-lock memory and does not wait. Status `NOT_READY` if no block of that size is free.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_try_alloc(const struct pinlane_pool *pool,
                                        size_t bytes,
                                        struct pinlane_buffer **buffer);

/**
 * Allocates as `pinlane_buffer_alloc_timeout` without a limit, and passes the buffer to
 * `allocated`, with `user`. Does not block. Requests are served in the order of the calls.
 * `request`, which can withdraw the call, may be NULL.
 *
 * If this call succeeds, `allocated` is called exactly once, perhaps before this call returns. If
 * it fails, `allocated` is never called.
 *
 * Statuses that `allocated` gets: `BUDGET_EXHAUSTED` if the request is larger than the budget, or
 * than what is left of it beside quarantined memory, `OUT_OF_HOST_MEMORY`, `CANCELLED`,
 * `INVALID_VALUE` if the size overflows.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `INVALID_VALUE` if `allocated` is NULL;
 * `UNSUPPORTED` if the request has to wait and this is a host function, or no thread can be
 * started.
 *
 * # Safety
 *
 * - `allocated` may be called with `user`, on any thread, and does not unwind.
 * - `request` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_alloc_async(const struct pinlane_pool *pool,
                                          size_t bytes,
                                          pinlane_allocated allocated,
                                          void *user,
                                          struct pinlane_request **request);

/**
 * Page-locks `bytes` of the caller's own memory, from `memory` on, for all devices of the process
 * (`cudaHostRegister`), and writes a buffer of it to `buffer`. It works as a buffer from a pool.
 * Blocks for about as long as allocating page-locked memory of that size takes. `memory` may have
 * any alignment, and be NULL if `bytes` is 0.
 *
 * The memory is lent until `pinlane_buffer_free` returns `PINLANE_STATUS_OK`. That call blocks
 * until the device is done with the memory, and unlocks its pages; then the caller may use and
 * free it.
 *
 * Statuses: `INVALID_HANDLE`, `OUT_OF_HOST_MEMORY`, `FORKED_PROCESS`, `UNSUPPORTED` inside a host
 * function; `INVALID_VALUE` if a part of the memory is page-locked already or cannot be
 * page-locked (a shared mapping of a file), if `memory` or `buffer` is NULL, or if the size
 * overflows.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to a variable.
 * - `bytes` from `memory` on can be read and written until `pinlane_buffer_free` returns
 *   `PINLANE_STATUS_OK`. Until then they are accessed only through the buffer.
 */
pinlane_status pinlane_buffer_register(const struct pinlane_device *device,
                                       void *memory,
                                       size_t bytes,
                                       struct pinlane_buffer **buffer);

/**
 * Page-locks `bytes` of the caller's own memory, from `memory` on, as a source of uploads: memory
 * that nothing changes, which may be mapped for reading only, such as a file or a constant
 * (`cudaHostRegister` with `cudaHostRegisterReadOnly`). Otherwise as `pinlane_buffer_register`.
 * Each upload takes the bytes from there, and no thread of the host copies them. Calls that would
 * write to the buffer return `INVALID_VALUE`. `pinlane_buffer_read` waits for nothing.
 *
 * A device without `cudaDevAttrHostRegisterReadOnlySupported` registers memory that is mapped
 * writable, and refuses other memory: upload that with `pinlane_upload_slice`.
 *
 * Statuses: as for `pinlane_buffer_register`; `UNSUPPORTED` also for memory that is mapped for
 * reading only, on a device that cannot register it.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to a variable.
 * - `bytes` from `memory` on can be read, and do not change, until `pinlane_buffer_free` returns
 *   `PINLANE_STATUS_OK`.
 */
pinlane_status pinlane_buffer_register_read_only(const struct pinlane_device *device,
                                                 const void *memory,
                                                 size_t bytes,
                                                 struct pinlane_buffer **buffer);

/**
 * Writes the address of the bytes to `data`, for reading. Blocks until every pending device write
 * to the buffer is complete. The bytes may be read until the next call that lets the device write
 * to the buffer or that frees it.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `FORKED_PROCESS`, or the error of a copy that failed;
 * `INVALID_VALUE` if `data` is NULL.
 *
 * # Safety
 *
 * - `data` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_read(const struct pinlane_buffer *buffer,
                                   const void **data);

/**
 * Writes the address of the bytes to `data`, for writing. Blocks until every pending device use of
 * the buffer is complete. The bytes may be written until the next call that lets the device use
 * the buffer or that frees it.
 *
 * Statuses: as for `pinlane_buffer_read`.
 *
 * # Safety
 *
 * - `data` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_write(struct pinlane_buffer *buffer,
                                    void **data);

/**
 * As `pinlane_buffer_read`, but does not block: status `NOT_READY` if it would have to wait.
 *
 * # Safety
 *
 * - `data` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_try_read(const struct pinlane_buffer *buffer, const void **data);

/**
 * As `pinlane_buffer_write`, but does not block: status `NOT_READY` if it would have to wait.
 *
 * # Safety
 *
 * - `data` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_try_write(struct pinlane_buffer *buffer, void **data);

/**
 * Writes the address of the bytes to `data`, for the caller's own CUDA calls, without waiting,
 * even while other calls use the buffer. Order the CUDA calls with `pinlane_foreign_begin` or
 * `pinlane_buffer_record_use`. The host must not access the bytes through this address.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `data` is NULL.
 *
 * # Safety
 *
 * - `data` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_address(const struct pinlane_buffer *buffer, void **data);

/**
 * Writes the buffer's size in bytes to `bytes`, even while other calls use the buffer.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `bytes` is NULL.
 *
 * # Safety
 *
 * - `bytes` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_size(const struct pinlane_buffer *buffer, size_t *bytes);

/**
 * Makes later work of `stream` wait, on the device, for every pending use of the buffer. Then the
 * caller's own work on the buffer may be enqueued on the stream. Does not block.
 *
 * Statuses: as for `pinlane_buffer_record_use`.
 */
pinlane_status pinlane_buffer_acquire(struct pinlane_buffer *buffer,
                                      const struct pinlane_stream *stream);

/**
 * Records that the caller's own CUDA calls on `stream` read or write the buffer. Everything on the
 * stream now counts as a use, and later uses wait for it. Call it after that work is enqueued;
 * call `pinlane_buffer_acquire` before. For a `cudaStream_t`, borrow it once with
 * `pinlane_stream_borrow`. Does not block.
 *
 * With `BUSY` the use is not recorded: call again. If several threads use a buffer, call
 * `pinlane_foreign_begin` instead: it holds the buffer from before the work is enqueued.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
 * `WRONG_THREAD`, `CUDA`.
 */
pinlane_status pinlane_buffer_record_use(struct pinlane_buffer *buffer,
                                         const struct pinlane_stream *stream);

/**
 * Frees the buffer; NULL is a no-op. Returns at once, even in the middle of a copy: the memory is
 * reused only when the device is done with it. A buffer of the caller's own memory, from
 * `pinlane_buffer_register`, is the exception: the call waits for the device, then the memory
 * belongs to the caller again.
 *
 * The memory of a buffer that a graph holds, or has lent, stays until the graph is freed too.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a buffer. For the caller's own
 * memory also `BUSY` while another thread's call uses it, or a graph holds it or has lent it;
 * `UNSUPPORTED` inside a host function (also one that `cudaLaunchHostFunc` runs), and what the
 * CUDA runtime reports if it fails to wait for the device or to unregister the memory. The buffer
 * is then unchanged, the memory is still lent and page-locked, and the call may be repeated. After
 * `DEVICE_LOST`, copies that were enqueued before may still run: keep the memory until the process
 * ends.
 */
pinlane_status pinlane_buffer_free(struct pinlane_buffer *buffer);

/**
 * The CUDA runtime's own name of a `cudaError_t`, such as "cudaErrorMemoryAllocation", or
 * "cudaErrorUnknownCode" for a code that pinlane has no name for. A constant string, never NULL.
 */
const char *pinlane_cuda_error_name(int32_t cuda_error);

/**
 * 1 if a `cudaError_t` means a corrupted context: every later call of the process returns it too,
 * and the process must end. 0 for any other code.
 */
int32_t pinlane_cuda_error_is_sticky(int32_t cuda_error);

/**
 * Opens GPU number `ordinal`, counted from 0, and writes it to `device`. The caller frees it with
 * `pinlane_device_free`. Blocks while CUDA initialises, which can take a second.
 *
 * Statuses: `NO_DEVICE` (the message says what is missing), `FORKED_PROCESS`, `INVALID_VALUE` if
 * `device` is NULL.
 *
 * # Safety
 *
 * - `device` is NULL or points to a variable.
 */
pinlane_status pinlane_device_open(int32_t ordinal,
                                   struct pinlane_device **device);

/**
 * Opens GPU 0 if there is one, otherwise an emulated device, and writes it to `device`. The caller
 * frees it with `pinlane_device_free`. `pinlane_device_name` shows which it is.
 *
 * Statuses: as for `pinlane_device_open`, except `NO_DEVICE`.
 *
 * # Safety
 *
 * - `device` is NULL or points to a variable.
 */
pinlane_status pinlane_device_open_or_emulated(struct pinlane_device **device);

/**
 * Writes the number of GPUs to `count`: 0 if there is no driver, or no CUDA in this build.
 *
 * Statuses: `INVALID_VALUE` if `count` is NULL.
 *
 * # Safety
 *
 * - `count` is NULL or points to a variable.
 */
pinlane_status pinlane_device_count(int32_t *count);

/**
 * Writes the device's name, as the vendor prints it, to `buffer`: at most `capacity` bytes with
 * the terminating NUL. A longer name is cut off.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `buffer` is NULL or `capacity` is 0.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to `capacity` bytes.
 */
pinlane_status pinlane_device_name(const struct pinlane_device *device,
                                   char *buffer,
                                   size_t capacity);

/**
 * Writes the device's number to `ordinal`.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `ordinal` is NULL.
 *
 * # Safety
 *
 * - `ordinal` is NULL or points to a variable.
 */
pinlane_status pinlane_device_ordinal(const struct pinlane_device *device, int32_t *ordinal);

/**
 * Writes 1 to `same` if both handles are of one device, else 0.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `same` is NULL.
 *
 * # Safety
 *
 * - `same` is NULL or points to a variable.
 */
pinlane_status pinlane_device_is_same(const struct pinlane_device *device,
                                      const struct pinlane_device *other,
                                      int32_t *same);

/**
 * Writes the device's free and total memory, in bytes.
 *
 * Statuses: `INVALID_HANDLE`, `DEVICE_LOST`, `FORKED_PROCESS`; `INVALID_VALUE` if an output is
 * NULL.
 *
 * # Safety
 *
 * - `free_bytes` and `total_bytes` are each NULL or point to a variable.
 */
pinlane_status pinlane_device_memory_info(const struct pinlane_device *device,
                                          size_t *free_bytes,
                                          size_t *total_bytes);

/**
 * Writes the number of the device's streams that pinlane created and that still exist to `count`:
 * streams with a handle, streams that a live buffer may still wait for, and a few internal
 * streams.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `count` is NULL.
 *
 * # Safety
 *
 * - `count` is NULL or points to a variable.
 */
pinlane_status pinlane_device_live_streams(const struct pinlane_device *device,
                                           size_t *count);

/**
 * Writes to `bytes` how much memory is never freed because the device failed: when its buffer was
 * freed, nothing proved that the device was done with it. Counts device memory, memory of
 * `pinlane_buffer_register`, and memory of deleted tensors. A pool counts its own memory, in
 * `pinlane_pool_stats`.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `bytes` is NULL.
 *
 * # Safety
 *
 * - `bytes` is NULL or points to a variable.
 */
pinlane_status pinlane_device_quarantined_bytes(const struct pinlane_device *device,
                                                size_t *bytes);

/**
 * Writes another handle of the same device to `clone`. The caller frees it with
 * `pinlane_device_free`. Does not block.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `clone` is NULL.
 *
 * # Safety
 *
 * - `clone` is NULL or points to a variable.
 */
pinlane_status pinlane_device_clone(const struct pinlane_device *device,
                                    struct pinlane_device **clone);

/**
 * Frees the handle; NULL is a no-op. Streams, pools and buffers of the device stay valid.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a device.
 */
pinlane_status pinlane_device_free(struct pinlane_device *device);

/**
 * Allocates `bytes` of device memory, aligned to 256, and writes the buffer to `buffer`. The
 * caller frees it with `pinlane_device_buffer_free`. The contents are unspecified. Does not wait
 * for the device.
 *
 * Statuses: `INVALID_HANDLE`, `OUT_OF_DEVICE_MEMORY`, `FORKED_PROCESS`; `INVALID_VALUE` if
 * `buffer` is NULL.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_alloc(const struct pinlane_device *device,
                                           size_t bytes,
                                           struct pinlane_device_buffer **buffer);

/**
 * Makes a buffer of `bytes` of the caller's own device memory, at `pointer`, and writes it to
 * `buffer`. It works as a buffer that pinlane has allocated: its uses are ordered and waited for.
 * The caller frees it with `pinlane_device_buffer_free`, which does not free the memory. Does not
 * block. `pointer` may be NULL if `bytes` is 0.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `INVALID_VALUE` if `pointer` or `buffer` is NULL,
 * or the size exceeds the address space.
 *
 * # Safety
 *
 * - `bytes` from `pointer` on lie in one allocation on this device. It stays allocated until
 *   everything that was enqueued through the buffer is complete, even after the buffer is freed.
 * - Work on the memory that was enqueued elsewhere before this call is complete, or ordered before
 *   the streams that the buffer is used on. The caller orders later work that is enqueued
 *   elsewhere, with `pinlane_foreign_begin` for example.
 * - `buffer` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_borrow(const struct pinlane_device *device,
                                            void *pointer,
                                            size_t bytes,
                                            struct pinlane_device_buffer **buffer);

/**
 * Writes the device address of the buffer to `pointer`, for the caller's own kernels, even while
 * other calls use the buffer. NULL for a buffer of 0 bytes. Order the kernels with
 * `pinlane_foreign_begin`, or with `pinlane_device_buffer_acquire` before they are enqueued and
 * `pinlane_device_buffer_record_use` afterwards.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `pointer` is NULL.
 *
 * # Safety
 *
 * - `pointer` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_address(const struct pinlane_device_buffer *buffer,
                                             void **pointer);

/**
 * Writes the buffer's size in bytes to `bytes`, even while other calls use the buffer.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `bytes` is NULL.
 *
 * # Safety
 *
 * - `bytes` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_size(const struct pinlane_device_buffer *buffer,
                                          size_t *bytes);

/**
 * Makes later work of `stream` wait, on the device, for every pending use of the buffer. Then the
 * caller's own work on the buffer may be enqueued on the stream. Does not block.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
 * `WRONG_THREAD`, `CUDA`.
 */
pinlane_status pinlane_device_buffer_acquire(struct pinlane_device_buffer *buffer,
                                             const struct pinlane_stream *stream);

/**
 * Records that the caller's own work on `stream` reads or writes the buffer. Everything on the
 * stream now counts as a use, and later uses wait for it. Call it after that work is enqueued.
 * Does not block. With `BUSY` the use is not recorded, as in `pinlane_buffer_record_use`.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
 * `WRONG_THREAD`, `CUDA`.
 */
pinlane_status pinlane_device_buffer_record_use(struct pinlane_device_buffer *buffer,
                                                const struct pinlane_stream *stream);

/**
 * Frees the buffer; NULL is a no-op. Returns at once, even in the middle of a copy: the memory is
 * freed in stream order, after its last use. The memory of a batch is reused for a later batch.
 * The caller's own memory, of `pinlane_device_buffer_borrow`, is not freed.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a device buffer.
 */
pinlane_status pinlane_device_buffer_free(struct pinlane_device_buffer *buffer);

/**
 * Writes the number of handles of that `kind`, one of `PINLANE_KIND_*`, that have not been freed
 * to `count`: a program that has freed everything gets 0. Leak checkers cannot find such handles,
 * because the library knows them all. Looks at every handle; takes a short lock. Handles that
 * other threads create or free during the call may or may not count.
 *
 * Statuses: `FORKED_PROCESS`; `INVALID_VALUE` for another `kind`, or if `count` is NULL.
 *
 * # Safety
 *
 * - `count` is NULL or points to a variable.
 */
pinlane_status pinlane_live_count(int32_t kind,
                                  size_t *count);

/**
 * Sets the function of the process that reports losses that no call can return, for example to a
 * log. NULL, the default: no function.
 *
 * Blocks while the former function is running. When the call returns, the former function is not
 * running and is not called again, so the data that it uses may be freed. Called from inside the
 * function itself it does not block.
 *
 * Statuses: `FORKED_PROCESS`.
 *
 * # Safety
 *
 * - `function` may be called with `user` on any thread until another one is set, and does not
 *   unwind.
 */
pinlane_status pinlane_set_log_callback(pinlane_log_callback function,
                                        void *user);

/**
 * Makes a tensor of the buffer and writes it to `tensor`: a `DLManagedTensorVersioned` of DLPack
 * 1, for NumPy, PyTorch, JAX, CuPy. Elements of less than a byte are packed. The buffer's handle
 * is freed: from now on the memory belongs to the tensor. The tensor's deleter, on any thread,
 * gives it back to the pool. Blocks until every pending device use of the buffer is complete.
 * `options` may be NULL.
 *
 * If device work of the consumer uses the memory, name its stream: the memory is reused only after
 * all work that was on the stream when the deleter was called. A borrowed CUDA stream must live as
 * long as the tensor; the handle of the stream may be freed.
 *
 * Statuses: `INVALID_HANDLE`; `BUSY`, also if a graph has lent the buffer; `OUT_OF_RANGE` if the
 * tensor does not lie in the buffer; `FORKED_PROCESS`, or the error of a copy that failed;
 * `INVALID_VALUE` if `tensor` is NULL, for memory of `pinlane_buffer_register`, a per-thread
 * default stream, an invalid shape, or options of an unknown size, device type or flag. The buffer
 * is then unchanged.
 *
 * # Safety
 *
 * - `options` is NULL or points to an initialised struct whose `size` member is right, and whose
 *   arrays have `ndim` elements.
 * - `tensor` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_into_dlpack(struct pinlane_buffer *buffer,
                                          const struct pinlane_dlpack_options *options,
                                          struct DLManagedTensorVersioned **tensor);

/**
 * Makes a tensor of the buffer and writes it to `tensor`, as `pinlane_buffer_into_dlpack` does.
 * `options` must name the stream on which the consumer uses the tensor: its later work waits for
 * every pending use of the buffer. The tensor's deleter frees the memory in stream order, after
 * all work that was on the stream when the deleter was called. Does not block.
 *
 * The stream corresponds to `__dlpack__(stream=...)` of the Python protocol. The memory of an
 * emulated device is exported as `kDLExtDev`, which other libraries refuse.
 *
 * Statuses: as for `pinlane_buffer_into_dlpack`; `INVALID_VALUE` also for a batch of
 * `pinlane_prefetch_next`; `INVALID_HANDLE` also if `options` or its stream is NULL;
 * `WRONG_DEVICE`, `STREAM_CAPTURING`, `WRONG_THREAD`, `CUDA`.
 *
 * # Safety
 *
 * - As for `pinlane_buffer_into_dlpack`.
 */
pinlane_status pinlane_device_buffer_into_dlpack(struct pinlane_device_buffer *buffer,
                                                 const struct pinlane_dlpack_options *options,
                                                 struct DLManagedTensorVersioned **tensor);

/**
 * Makes a buffer of `tensor`, a `DLManagedTensorVersioned` in host memory, and writes it to
 * `buffer`. The buffer owns the tensor: `pinlane_buffer_free` blocks until the device is done with
 * the memory, then the tensor's deleter is called, on any thread. Memory that is not page-locked
 * (`kDLCPU`) is page-locked in place until then, as by `pinlane_buffer_register`; memory of type
 * `kDLCUDAHost` is used directly. The tensor must be writable and have no gaps. Its elements are
 * packed, unless its flags say that they are padded. If it cannot be known whether the device is
 * done, the deleter is never called.
 *
 * Statuses: `INVALID_HANDLE`, `OUT_OF_HOST_MEMORY`, `FORKED_PROCESS`, `UNSUPPORTED` inside a host
 * function; `INVALID_VALUE` if a pointer is NULL, for a tensor that is read-only (import it with
 * `pinlane_buffer_from_dlpack_read_only`), has gaps (`pinlane_buffer_from_dlpack_strided`) or
 * unknown flags, is not of version 1, is in other memory, or does not fit in the address space,
 * and for memory that is page-locked already or cannot be. The caller then keeps the tensor.
 *
 * # Safety
 *
 * - `tensor` is NULL or a tensor that the caller owns. Its deleter may be called on any thread;
 *   until then no other code accesses the memory. Memory of type `kDLCUDAHost` is page-locked for
 *   all devices.
 * - `buffer` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_from_dlpack(const struct pinlane_device *device,
                                          struct DLManagedTensorVersioned *tensor,
                                          struct pinlane_buffer **buffer);

/**
 * As `pinlane_buffer_from_dlpack`, of a tensor that is only read, such as one with the flag
 * `DLPACK_FLAG_BITMASK_READ_ONLY`: the buffer is a source of uploads, as one of
 * `pinlane_buffer_register_read_only`. Calls that would write to it return `INVALID_VALUE`.
 *
 * Statuses: as for `pinlane_buffer_from_dlpack`, but a tensor may be read-only; `UNSUPPORTED` also
 * for memory that is mapped for reading only, on a device that cannot register it.
 *
 * # Safety
 *
 * - `tensor` is NULL or a tensor that the caller owns. Its deleter may be called on any thread;
 *   until then its elements do not change. Memory of type `kDLCUDAHost` is page-locked for all
 *   devices.
 * - `buffer` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_from_dlpack_read_only(const struct pinlane_device *device,
                                                    struct DLManagedTensorVersioned *tensor,
                                                    struct pinlane_buffer **buffer);

/**
 * As `pinlane_buffer_from_dlpack`, of a tensor that may have gaps. The buffer has all bytes from
 * the first element to the last one, and `rows` gets where the elements lie in them, in their
 * order: pass them with the buffer to `pinlane_upload_strided` and its like. A tensor without gaps
 * is one row.
 *
 * Contiguous dimensions count as one. If neighbours in the last dimension follow each other, they
 * are a row, and there may be two other dimensions. If they lie apart, as in one column of a
 * matrix, each element is a row, and there may be two dimensions. Elements with gaps take whole
 * bytes.
 *
 * Statuses: as for `pinlane_buffer_from_dlpack`; `INVALID_VALUE` if `rows` is NULL, and for other
 * gaps: strides that are negative, rows that overlap, and more dimensions.
 *
 * # Safety
 *
 * - As for `pinlane_buffer_from_dlpack`. The memory includes the gaps.
 * - `rows` is NULL or points to a struct.
 */
pinlane_status pinlane_buffer_from_dlpack_strided(const struct pinlane_device *device,
                                                  struct DLManagedTensorVersioned *tensor,
                                                  struct pinlane_buffer **buffer,
                                                  struct pinlane_strided *rows);

/**
 * As `pinlane_buffer_from_dlpack_read_only`, of a tensor that may have gaps, as
 * `pinlane_buffer_from_dlpack_strided`.
 *
 * Statuses: as for `pinlane_buffer_from_dlpack_strided`, but a tensor may be read-only;
 * `UNSUPPORTED` also for memory that is mapped for reading only, on a device that cannot register
 * it.
 *
 * # Safety
 *
 * - As for `pinlane_buffer_from_dlpack_read_only`. The gaps do not change either.
 * - `rows` is NULL or points to a struct.
 */
pinlane_status pinlane_buffer_from_dlpack_read_only_strided(const struct pinlane_device *device,
                                                            struct DLManagedTensorVersioned *tensor,
                                                            struct pinlane_buffer **buffer,
                                                            struct pinlane_strided *rows);

/**
 * Makes a buffer of `tensor`, a `DLManagedTensorVersioned` in the memory of the device of
 * `stream`, and writes it to `buffer`. Later uses of the buffer wait for all work on `stream`, so
 * pass the stream that you passed to the producer (`__dlpack__(stream=...)`). The buffer owns the
 * tensor: `pinlane_device_buffer_free` blocks until no use of the memory is pending, then the
 * tensor's deleter is called, on any thread. The tensor must be writable and have no gaps. Does
 * not block.
 *
 * Statuses: `INVALID_HANDLE`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
 * `WRONG_THREAD`, `CUDA`; `INVALID_VALUE` if a pointer is NULL, or for a tensor that is read-only,
 * has gaps (`pinlane_device_buffer_from_dlpack_strided`) or unknown flags, is not of version
 * 1, or does not fit in the address space. The caller then keeps the tensor.
 *
 * # Safety
 *
 * - `tensor` is NULL or a tensor that the caller owns. Its deleter may be called on any thread;
 *   until then no other code uses the memory.
 * - `buffer` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_from_dlpack(const struct pinlane_stream *stream,
                                                 struct DLManagedTensorVersioned *tensor,
                                                 struct pinlane_device_buffer **buffer);

/**
 * As `pinlane_device_buffer_from_dlpack`, of a tensor that may have gaps, as
 * `pinlane_buffer_from_dlpack_strided`: `rows` gets where the elements lie in the buffer.
 *
 * Statuses: as for `pinlane_device_buffer_from_dlpack`; `INVALID_VALUE` if `rows` is NULL, and for
 * other gaps: strides that are negative, rows that overlap, and more dimensions.
 *
 * # Safety
 *
 * - As for `pinlane_device_buffer_from_dlpack`. The memory includes the gaps.
 * - `rows` is NULL or points to a struct.
 */
pinlane_status pinlane_device_buffer_from_dlpack_strided(const struct pinlane_stream *stream,
                                                         struct DLManagedTensorVersioned *tensor,
                                                         struct pinlane_device_buffer **buffer,
                                                         struct pinlane_strided *rows);

/**
 * Writes the same tensor in the form of DLPack before 1.0, a `DLManagedTensor`, to `legacy`. It
 * owns `tensor`: its deleter calls that of `tensor`. Does not block.
 *
 * Statuses: `INVALID_VALUE` if a pointer is NULL, or if the tensor is of another version, or is
 * read-only or padded, which the older form cannot express. The caller then keeps the tensor.
 *
 * # Safety
 *
 * - `tensor` is NULL or a tensor that the caller owns.
 * - `legacy` is NULL or points to a variable.
 */
pinlane_status pinlane_dlpack_to_legacy(struct DLManagedTensorVersioned *tensor,
                                        struct DLManagedTensor **legacy);

/**
 * Writes the same tensor in the form of DLPack 1 to `tensor`. It owns `legacy`: its deleter calls
 * that of `legacy`. Elements of less than a byte count as packed. Does not block.
 *
 * Statuses: `INVALID_VALUE` if a pointer is NULL.
 *
 * # Safety
 *
 * - `legacy` is NULL or a tensor that the caller owns.
 * - `tensor` is NULL or points to a variable.
 */
pinlane_status pinlane_dlpack_from_legacy(struct DLManagedTensor *legacy,
                                          struct DLManagedTensorVersioned **tensor);

/**
 * Makes an emulated machine with `count` devices, 1 to 64, and writes them to `devices[0 ..
 * count]`. The caller frees each with `pinlane_device_free`. `options` may be NULL.
 * `pinlane_device_emulator` returns the machine.
 *
 * Statuses: `INVALID_VALUE` if `devices` is NULL or misaligned, for a `count` out of range, for
 * options of an unknown size, execution or flag, or for an invalid `replay`; `FORKED_PROCESS`.
 *
 * # Safety
 *
 * - `options` is NULL or points to an initialised struct whose `size` member is right, and whose
 *   `replay` is NULL or points to a string.
 * - `devices` is NULL or points to an array of `count` elements.
 */
pinlane_status pinlane_emulator_create(const struct pinlane_emulator_options *options,
                                       struct pinlane_device **devices,
                                       int32_t count);

/**
 * Writes the machine that the emulated device belongs to, to `emulator`. The caller frees it with
 * `pinlane_emulator_free`. It may outlive the devices: it then shows what is still alive.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `UNSUPPORTED` for a GPU; `INVALID_VALUE` if
 * `emulator` is NULL.
 *
 * # Safety
 *
 * - `emulator` is NULL or points to a variable.
 */
pinlane_status pinlane_device_emulator(const struct pinlane_device *device,
                                       struct pinlane_emulator **emulator);

/**
 * Opens device number `ordinal` of the machine, again or after it was freed, and writes it to
 * `device`. The caller frees it with `pinlane_device_free`. Objects made from different handles of
 * one device can be used together.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `NO_DEVICE` if the machine has no such device;
 * `DEVICE_LOST`, `CUDA`, the status of an injected fault; `INVALID_VALUE` if `device` is NULL.
 *
 * # Safety
 *
 * - `device` is NULL or points to a variable.
 */
pinlane_status pinlane_emulator_open(const struct pinlane_emulator *emulator,
                                     int32_t ordinal,
                                     struct pinlane_device **device);

/**
 * Frees the handle; NULL is a no-op. The machine lives as long as the objects made on it.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was an emulator.
 */
pinlane_status pinlane_emulator_free(struct pinlane_emulator *emulator);

/**
 * Runs `program` under many schedules, on the calling thread, each time on a new emulated
 * machine.
 *
 * The program gets `user` and its machine. It opens devices with `pinlane_emulator_open`, and
 * frees all objects that it makes, except the machine.
 *
 * The first run is eager; the others alternate between all modes, each with its own seed. A run
 * fails if `program` does not return 0, or if its machine has findings, including races. Then it
 * is made smaller: first it is tried eagerly, then decisions are removed as long as it still fails
 * in the same way. The smallest failing run is printed on stderr, with the text that repeats it,
 * and written to `report` as a text. `explored`, whose `size` member must be set, gets the
 * outcome.
 *
 * If the environment has `PINLANE_REPLAY`, such as `12:B#3`, only that run is made.
 *
 * `report`, `capacity` and `needed` are as `buffer`, `capacity` and `needed` of
 * `pinlane_emulator_finding`; the text is empty if no run failed. `options` may be NULL. Blocks as
 * long as the runs take.
 *
 * Statuses: `OK` even if a run failed: see `explored`. `INVALID_VALUE` if `program` or `explored`
 * is NULL, for options of an unknown size, a number of devices or flags out of range, machines
 * that cannot be made, or an invalid `PINLANE_REPLAY`; `FORKED_PROCESS`.
 *
 * # Safety
 *
 * - `options` is NULL or points to an initialised struct whose `size` member is right, and whose
 *   `machine` is as the options of `pinlane_emulator_create`.
 * - `program` may be called with `user` and its other arguments.
 * - `explored` is NULL or points to a struct whose `size` member is set and right.
 * - `report` is NULL or points to `capacity` bytes.
 * - `needed` is NULL or points to a variable.
 */
pinlane_status pinlane_explore(const struct pinlane_exploration *options,
                               pinlane_explored_program program,
                               void *user,
                               struct pinlane_explored *explored,
                               char *report,
                               size_t capacity,
                               size_t *needed);

/**
 * Writes what is allocated and pending on the machine to `usage`, whose `size` member must be set.
 * An open device has internal streams and page-locked memory, so expect 0 of each only when all
 * devices, streams, pools, buffers and tickets are freed. Even then operations may be pending on a
 * lazy machine.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `usage` is NULL or its size is unknown.
 *
 * # Safety
 *
 * - `usage` is NULL or points to a struct whose `size` member is set and right.
 */
pinlane_status pinlane_emulator_get_usage(const struct pinlane_emulator *emulator,
                                          struct pinlane_emulator_usage *usage);

/**
 * Writes to `count` how many misuses of CUDA the machine has seen, at most 1000. A correct program
 * has none. On a GPU they cause torn data or a crash.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `count` is NULL.
 *
 * # Safety
 *
 * - `count` is NULL or points to a variable.
 */
pinlane_status pinlane_emulator_finding_count(const struct pinlane_emulator *emulator,
                                              size_t *count);

/**
 * Writes misuse number `index`, counted from 0, to `buffer`, as a text: its kind, such as
 * `FreedInFlight`, the call, the bytes, the stream, and the machine's seed. A `Race` has more
 * lines: both operations, the memory, and what would have ordered them. At most `capacity` bytes
 * are written, with the terminating NUL; a longer text is truncated. `needed`, which may be NULL,
 * gets the number of bytes that the whole text needs. `buffer` may be NULL if `capacity` is 0.
 *
 * Statuses: `INVALID_HANDLE`; `OUT_OF_RANGE` if there are fewer; `INVALID_VALUE` if `buffer` is
 * NULL while `capacity` is not 0.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to `capacity` bytes.
 * - `needed` is NULL or points to a variable.
 */
pinlane_status pinlane_emulator_finding(const struct pinlane_emulator *emulator,
                                        size_t index,
                                        char *buffer,
                                        size_t capacity,
                                        size_t *needed);

/**
 * Writes misuse number `index` to `buffer` as `pinlane_emulator_finding` does, but as one JSON
 * object, on one line. Its members are `kind`, `message`, `mode`, such as `lazy` or `pct:3`,
 * `seed`, and `race`. That is `null`, or an object: `first` and `second` are the two operations,
 * each with `call`, `operation`, `access`, `agent`, `position`, `site`, `start` and `bytes`;
 * `memory` has `kind`, `start`, `bytes`, `generation` and `site`; `start` and `bytes` are the
 * range that both use; `seen` is an array of texts, which list what the run did to order them, and
 * `missing` says what would have ordered them. A `site` is `null`, or has `file` and `line`.
 * Addresses are strings, such as `"0xdea0000000002000"`. The drop-in library writes the same.
 * Newer versions may add members.
 *
 * Statuses: as for `pinlane_emulator_finding`.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to `capacity` bytes.
 * - `needed` is NULL or points to a variable.
 */
pinlane_status pinlane_emulator_finding_json(const struct pinlane_emulator *emulator,
                                             size_t index,
                                             char *buffer,
                                             size_t capacity,
                                             size_t *needed);

/**
 * Writes the decisions of the machine so far to `buffer`, as a text such as `12:B#3`: the seed,
 * and the decisions that differ from an eager machine. The member `replay` of the options of
 * another machine repeats them. A program with one thread and without host functions then runs
 * exactly as before; with more threads, each decision is the same for the operation with the same
 * number in the same stream. `buffer`, `capacity` and `needed` are as for
 * `pinlane_emulator_finding`.
 *
 * Statuses: `INVALID_HANDLE`; `UNSUPPORTED` if the machine was made without
 * `PINLANE_EMULATOR_RECORD`; `INVALID_VALUE` if `buffer` is NULL while `capacity` is not 0.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to `capacity` bytes.
 * - `needed` is NULL or points to a variable.
 */
pinlane_status pinlane_emulator_replay(const struct pinlane_emulator *emulator,
                                       char *buffer,
                                       size_t capacity,
                                       size_t *needed);

/**
 * Makes a call of the machine's driver fail: the `nth` with that name from now on. 1 is the next
 * one, and 0 means the same. It then returns `cuda_error` and has no effect. `repeat` is
 * `PINLANE_FAULT_ONCE` or `PINLANE_FAULT_FOREVER`. Does not block.
 *
 * With `PINLANE_FAULT_ONCE_LATE` and `PINLANE_FAULT_FOREVER_LATE` the call takes effect, and then
 * fails, as a call that reports an earlier error: a copy is enqueued, memory is freed. HostAlloc,
 * DeviceAlloc, StreamCreate and EventCreate have no effect nevertheless, because their results
 * could never be freed.
 *
 * A sticky error, such as 700 (`cudaErrorIllegalAddress`), loses the device that the call names;
 * 4 (`cudaErrorCudartUnloading`) loses all devices of the machine.
 *
 * Calls of the driver: HostAlloc (`cudaHostAlloc`), HostFree (`cudaFreeHost`), HostRegister,
 * HostUnregister, DeviceAlloc (`cudaMallocAsync`), DeviceFree (`cudaFreeAsync`), CopyH2D, CopyD2H,
 * CopyBatch, CopyStrided, CopyD2D, CopyPeer, CopyStridedPeer, StreamCreate, StreamDestroy,
 * StreamQuery, StreamSynchronize, StreamWaitEvent, StreamCapture (`cudaStreamIsCapturing`),
 * EventCreate, EventDestroy, EventRecord, EventQuery, EventSynchronize, EventElapsed,
 * CaptureBegin, CaptureNode, CaptureEnd, GraphSetCopy, GraphLaunch, GraphDestroy, LaunchHost
 * (`cudaLaunchHostFunc`), PeerQuery, PeerEnable, PoolAccess, Attributes, MemoryInfo, and launches
 * of the kernels Fill, Checksum, MoveItems and Busy.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `call` is NULL or no call has that name, for a
 * `cuda_error` that is not positive, or for an unknown `repeat`.
 *
 * # Safety
 *
 * - `call` is NULL or points to a string.
 */
pinlane_status pinlane_emulator_inject(const struct pinlane_emulator *emulator,
                                       const char *call,
                                       uint64_t nth,
                                       int32_t cuda_error,
                                       int32_t repeat);

/**
 * Removes all faults: those that have not happened yet, and those that repeat. Lost devices stay
 * lost.
 *
 * Statuses: `INVALID_HANDLE`.
 */
pinlane_status pinlane_emulator_clear_faults(const struct pinlane_emulator *emulator);

/**
 * Writes to `count` how many calls with that name the machine's driver has had, including failed
 * ones. `pinlane_emulator_inject` lists the names.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `call` or `count` is NULL, or no call has that
 * name.
 *
 * # Safety
 *
 * - `call` is NULL or points to a string.
 * - `count` is NULL or points to a variable.
 */
pinlane_status pinlane_emulator_calls(const struct pinlane_emulator *emulator,
                                      const char *call,
                                      uint64_t *count);

/**
 * Loses device number `ordinal` of the machine, as a faulty kernel does: every later call on it
 * fails with `cuda_error`, which is sticky, such as 700 (`cudaErrorIllegalAddress`). Enqueued work
 * continues or never runs, as the seed decides. 4 (`cudaErrorCudartUnloading`) loses all devices,
 * as the end of the process does; calls then have the status `CUDA`, otherwise `DEVICE_LOST`. A
 * lost device stays lost.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` for a `cuda_error` that does not lose a device;
 * `NO_DEVICE` if the machine has no such device.
 */
pinlane_status pinlane_emulator_lose_device(const struct pinlane_emulator *emulator,
                                            int32_t ordinal,
                                            int32_t cuda_error);

/**
 * Stalls the stream: none of its operations starts until `pinlane_emulator_release`, or until the
 * stream is freed. Calls that wait for them block until then. The stream belongs to an emulated
 * device.
 *
 * Statuses: `INVALID_HANDLE`; `UNSUPPORTED` for a stream of a GPU; `CUDA` for a borrowed stream
 * that does not exist.
 */
pinlane_status pinlane_emulator_stall(const struct pinlane_stream *stream);

/**
 * Resumes a stream that `pinlane_emulator_stall` has stalled.
 *
 * Statuses: as for `pinlane_emulator_stall`.
 */
pinlane_status pinlane_emulator_release(const struct pinlane_stream *stream);

/**
 * Makes the stream slow: each of its operations takes `steps` more steps before it is complete. A
 * step is a call that any thread makes on the machine; a wait takes as many steps as it needs. 0
 * restores the normal speed. The stream belongs to an emulated device. Does not block.
 *
 * Statuses: as for `pinlane_emulator_stall`.
 */
pinlane_status pinlane_emulator_slow(const struct pinlane_stream *stream,
                                     uint32_t steps);

/**
 * Limits how many bytes may be page-locked on the machine at a time, allocated and registered
 * together. A call that exceeds the limit gets `cudaErrorMemoryAllocation`; existing memory stays.
 * `SIZE_MAX` lifts the limit. Does not block.
 *
 * Statuses: `INVALID_HANDLE`.
 */
pinlane_status pinlane_emulator_limit_page_locked(const struct pinlane_emulator *emulator,
                                                  size_t bytes);

/**
 * Changes how many bytes of memory each device of the machine has; existing memory stays. Does not
 * block.
 *
 * Statuses: `INVALID_HANDLE`.
 */
pinlane_status pinlane_emulator_limit_device_memory(const struct pinlane_emulator *emulator,
                                                    size_t bytes);

/**
 * Begins a graph capture of the stream in global mode, as `cudaStreamBeginCapture` does. Until it
 * ends, pinlane refuses to enqueue on the stream. The stream belongs to an emulated device.
 *
 * Statuses: as for `pinlane_emulator_stall`; `STREAM_CAPTURING` for the legacy default stream,
 * which cannot be captured; `CUDA` if the stream is being captured.
 */
pinlane_status pinlane_emulator_begin_capture(const struct pinlane_stream *stream);

/**
 * Ends a graph capture, on the thread that began it, and writes to `operations` how many it has
 * recorded. The graph is not kept.
 *
 * Statuses: as for `pinlane_emulator_stall`; `STREAM_CAPTURING` if a forbidden call has
 * invalidated the capture, which has ended now; `CUDA` if the stream is not being captured, or if
 * the capture began on another stream or thread; `INVALID_VALUE` if `operations` is NULL.
 *
 * # Safety
 *
 * - `operations` is NULL or points to a variable.
 */
pinlane_status pinlane_emulator_end_capture(const struct pinlane_stream *stream,
                                            size_t *operations);

/**
 * Opens the regular file at `path`, which ends with a NUL, and writes it to `file`. The caller
 * frees it with `pinlane_file_free`. `flags` is 0 or `PINLANE_FILE_DIRECT`. Blocks as opening a
 * file does.
 *
 * If another program writes to the file during a read, the read may return old or new bytes. If it
 * truncates the file, a read beyond the end returns a status. There are no other effects.
 *
 * Statuses: `IO` if the file cannot be opened or is not a regular file; `UNSUPPORTED` if the file
 * system does not support `O_DIRECT`; `FORKED_PROCESS`; `INVALID_VALUE` if `path` or `file` is
 * NULL, or for unknown flags.
 *
 * # Safety
 *
 * - `path` is NULL or points to a string that ends with a NUL.
 * - `file` is NULL or points to a variable.
 */
pinlane_status pinlane_file_open(const char *path,
                                 uint32_t flags,
                                 struct pinlane_file **file);

/**
 * Opens the regular file at `path`, which ends with a NUL, for uploads again and again: maps it,
 * and page-locks it where it lies in the page cache, for all devices of the process. Uploads of it
 * then return at once, and no thread of the host copies a byte. `pinlane_file_read` reads it as
 * that of `pinlane_file_open`. The caller frees `file` with `pinlane_file_free`, which blocks
 * until no upload reads the file.
 *
 * Blocks while the system reads the file and page-locks it: 50 to 70 ms a GiB for a file that is
 * in the page cache. If the device cannot page-lock memory that is mapped for reading only,
 * uploads read the file by way of slots.
 *
 * If another program writes to the file, an upload may copy old or new bytes. If it truncates the
 * file, an upload of what is gone returns a status, and what is written there later is not seen. A
 * `memfd` with the seals `F_SEAL_SHRINK` and `F_SEAL_WRITE` cannot be written or truncated: open
 * it by its path in `/proc/self/fd`, when it has its seals.
 *
 * Statuses: as for `pinlane_file_open`; `INVALID_HANDLE`; `OUT_OF_HOST_MEMORY`, and others of
 * `pinlane_buffer_register_read_only`, if the file cannot be page-locked.
 *
 * # Safety
 *
 * - `path` is NULL or points to a string that ends with a NUL.
 * - `file` is NULL or points to a variable.
 */
pinlane_status pinlane_file_open_mapped(const struct pinlane_device *device,
                                        const char *path,
                                        struct pinlane_file **file);

/**
 * Writes the current size of the file, in bytes, to `bytes`.
 *
 * Statuses: `INVALID_HANDLE`, `IO`; `INVALID_VALUE` if `bytes` is NULL.
 *
 * # Safety
 *
 * - `bytes` is NULL or points to a variable.
 */
pinlane_status pinlane_file_size(const struct pinlane_file *file, uint64_t *bytes);

/**
 * Reads `bytes` of the file, from `offset` on, into `buffer`, from `buffer_offset` on. Uses
 * several threads. Blocks until no device use of that part of the buffer is pending, and until
 * everything is read.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `FORKED_PROCESS`, `OUT_OF_RANGE` for a range that the file
 * or the buffer does not have: nothing was read. `IO` if the file ends early or cannot be read:
 * the contents of the buffer are unspecified.
 */
pinlane_status pinlane_file_read(const struct pinlane_file *file,
                                 uint64_t offset,
                                 struct pinlane_buffer *buffer,
                                 size_t buffer_offset,
                                 size_t bytes);

/**
 * Frees the handle and closes the file; NULL is a no-op. For a file of `pinlane_file_open_mapped`
 * it blocks until no upload reads it.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a file.
 */
pinlane_status pinlane_file_free(struct pinlane_file *file);

/**
 * Copies `bytes` of the file, from `offset` on, to the caller's own device memory. Blocks until
 * they are read, or not at all if the file is page-locked (`pinlane_file_open_mapped`); the ticket
 * says when they have arrived. Ordered as `pinlane_upload_slice`.
 * `device_pointer` may be NULL if `bytes` is 0; `ticket` may be NULL.
 *
 * Statuses: as for `pinlane_upload_slice`; `OUT_OF_RANGE` for a range that the file does not have:
 * nothing was enqueued. `IO` if the file ends early or cannot be read: the contents of the
 * destination are unspecified.
 *
 * # Safety
 *
 * - `device_pointer` is device memory of the stream's device, of at least `bytes`, and stays
 *   allocated until the copy is complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_upload_file(const struct pinlane_stream *stream,
                                   const struct pinlane_file *file,
                                   uint64_t offset,
                                   void *device_pointer,
                                   size_t bytes,
                                   struct pinlane_ticket **ticket);

/**
 * As `pinlane_upload_file`, to `destination` from `destination_offset` on. Also ordered after
 * conflicting uses of the buffer on other streams.
 *
 * Statuses: as for `pinlane_upload_file`; `BUSY`, `WRONG_DEVICE`.
 *
 * # Safety
 *
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_upload_file(const struct pinlane_stream *stream,
                                                 const struct pinlane_file *file,
                                                 uint64_t offset,
                                                 struct pinlane_device_buffer *destination,
                                                 size_t destination_offset,
                                                 size_t bytes,
                                                 struct pinlane_ticket **ticket);

/**
 * Copies `count` ranges of the file to device memory, as one job, so the device does not wait
 * between them. Fastest in the order of the file. Destinations must not overlap. Blocks and is
 * ordered as `pinlane_upload_file`; the ticket is for all ranges. `ranges` may be NULL if `count`
 * is 0; `ticket` may be NULL.
 *
 * Statuses: as for `pinlane_device_buffer_upload_file`; `INVALID_VALUE` if destinations overlap, a
 * pointer is NULL, or a destination is named twice.
 *
 * # Safety
 *
 * - `ranges` is NULL or points to an array of `count` elements.
 * - Device memory named by its address is memory of the stream's device, and stays allocated until
 *   the copies are complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_upload_file_ranges(const struct pinlane_stream *stream,
                                          const struct pinlane_file *file,
                                          const struct pinlane_file_range *ranges,
                                          size_t count,
                                          struct pinlane_ticket **ticket);

/**
 * Begins the caller's own work (a kernel, cuBLAS, NCCL, ...) on `stream`, which uses the `count`
 * buffers of `uses`: makes the stream wait for every pending use that conflicts, and writes a
 * handle for `pinlane_foreign_end` to `foreign`. Enqueue all of the work on the stream's
 * `cudaStream_t`, or order it into that, then call `pinlane_foreign_end`. Does not block. `uses`
 * may be NULL if `count` is 0.
 *
 * Until then the buffers are borrowed: other calls that conflict get `BUSY`, on this thread too.
 * Work that only reads a buffer does not conflict with other readers: name buffers that it does
 * not write with `PINLANE_ACCESS_READ`, and any number of threads can launch work on shared
 * weights at once. A buffer that is freed before the end is kept until the end. So a use is never
 * lost. Work that is never ended keeps its buffers borrowed.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
 * `WRONG_THREAD`, `CUDA`; `INVALID_VALUE` if a pointer is NULL, or a use names no buffer, two, or
 * an unknown access or flag.
 *
 * # Safety
 *
 * - `uses` is NULL or points to an array of `count` elements.
 * - `foreign` is NULL or points to a variable.
 */
pinlane_status pinlane_foreign_begin(const struct pinlane_stream *stream,
                                     const struct pinlane_use *uses,
                                     size_t count,
                                     struct pinlane_foreign **foreign);

/**
 * Ends what `pinlane_foreign_begin` began: everything on the stream now counts as a use of the
 * buffers, and later uses wait for it. Frees the handle; NULL is a no-op. Any thread may call it.
 * Does not block, unless the uses cannot be recorded: then it waits for the stream, and if that
 * fails too, the buffers stay borrowed forever. `ticket`, for the work, may be NULL.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY` if two threads end it at once, `FORKED_PROCESS`,
 * `INVALID_VALUE` if `ticket` is misaligned: the work has not ended. `STREAM_CAPTURING`,
 * `WRONG_THREAD`, `CUDA`, `DEVICE_LOST`: it has ended.
 *
 * # Safety
 *
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_foreign_end(struct pinlane_foreign *foreign,
                                   struct pinlane_ticket **ticket);

/**
 * Begins to capture work of `device`, and writes the capture to `capture`, which
 * `pinlane_capture_finish` or `pinlane_capture_free` frees. It has a stream of its own, so it
 * disturbs no other work, and no other work disturbs it. Does not block.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`, `CUDA`; `UNSUPPORTED` inside a host function;
 * `INVALID_VALUE` if `capture` is NULL.
 *
 * # Safety
 *
 * - `capture` is NULL or points to a variable.
 */
pinlane_status pinlane_capture_begin(const struct pinlane_device *device,
                                     struct pinlane_capture **capture);

/**
 * Joins the capture of `stream` that other code has begun (PyTorch, for example), and writes a
 * handle to `capture`: what it captures becomes a part of the other code's graph. The other code
 * ends its capture as usual, after `pinlane_capture_finish`, whose graph holds the buffers and is
 * launched between
 * `pinlane_graph_foreign_begin` and `pinlane_foreign_end`. Does not block.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`, `CUDA`; `STREAM_CAPTURING` if the capture is
 * invalid; `INVALID_VALUE` if the stream is not being captured, or `capture` is NULL.
 *
 * # Safety
 *
 * - As long as the graph of the other code, or an executable graph of it, can be launched, the
 *   capture or the graph that is made of it is not freed.
 * - Each launch is made between `pinlane_graph_foreign_begin` and `pinlane_foreign_end`.
 * - The other code does not end its capture during a call with `capture`.
 * - `capture` is NULL or points to a variable.
 */
pinlane_status pinlane_capture_join(const struct pinlane_stream *stream,
                                    struct pinlane_capture **capture);

/**
 * Captures a copy of `bytes` from `source`, from `source_offset` on, to `destination`, from
 * `destination_offset` on. Each launch reads `source` anew. The operations of a branch run one
 * after the other (`pinlane_capture_branch`). Does not block.
 *
 * Statuses: `INVALID_HANDLE`, `OUT_OF_RANGE`, `WRONG_DEVICE`, `FORKED_PROCESS`; `BUSY` if a call,
 * or another capture or graph, uses a buffer in a way that conflicts: nothing was captured, and
 * the capture goes on. `CUDA`, `DEVICE_LOST`, `STREAM_CAPTURING`: the capture has failed as a
 * whole, so all later calls return the same, and `pinlane_capture_finish` makes no graph.
 */
pinlane_status pinlane_capture_upload(struct pinlane_capture *capture,
                                      const struct pinlane_buffer *source,
                                      size_t source_offset,
                                      struct pinlane_device_buffer *destination,
                                      size_t destination_offset,
                                      size_t bytes);

/**
 * As `pinlane_capture_upload`, from device memory to page-locked memory.
 *
 * Statuses: as for `pinlane_capture_upload`.
 */
pinlane_status pinlane_capture_download(struct pinlane_capture *capture,
                                        const struct pinlane_device_buffer *source,
                                        size_t source_offset,
                                        struct pinlane_buffer *destination,
                                        size_t destination_offset,
                                        size_t bytes);

/**
 * As `pinlane_capture_upload`, within the memory of the device. The two may be parts of one
 * buffer.
 *
 * Statuses: as for `pinlane_capture_upload`; `INVALID_VALUE` if the two parts overlap.
 */
pinlane_status pinlane_capture_copy(struct pinlane_capture *capture,
                                    const struct pinlane_device_buffer *source,
                                    size_t source_offset,
                                    struct pinlane_device_buffer *destination,
                                    size_t destination_offset,
                                    size_t bytes);

/**
 * Captures a kernel that repeats the `pattern_bytes` bytes at `pattern`, 1 to 64, over `bytes` of
 * the buffer from `offset` on; `bytes` must be a multiple of `pattern_bytes`. The pattern may be
 * reused when the call returns. Does not block.
 *
 * Statuses: as for `pinlane_capture_upload`; `LENGTH_MISMATCH`; `INVALID_VALUE` if `pattern` is
 * NULL; `UNSUPPORTED` for patterns of more than 64 bytes.
 *
 * # Safety
 *
 * - `pattern` is NULL or points to `pattern_bytes` bytes.
 */
pinlane_status pinlane_capture_fill(struct pinlane_capture *capture,
                                    struct pinlane_device_buffer *buffer,
                                    size_t offset,
                                    size_t bytes,
                                    const void *pattern,
                                    size_t pattern_bytes);

/**
 * Captures the caller's own work (a kernel, cuBLAS, NCCL, ...) on the `count` buffers of `uses`:
 * writes the `cudaStream_t` that is being captured to `cuda_stream`. Enqueue the work there, or
 * order it into that stream, before the next call on this capture. `uses` may be NULL if `count`
 * is 0. Does not block.
 *
 * A call that cannot be captured makes the capture invalid: `pinlane_capture_finish`, if not an
 * earlier call, returns `STREAM_CAPTURING` or `CUDA`.
 *
 * Statuses: as for `pinlane_capture_upload`; `INVALID_VALUE` if a pointer is NULL, or a use names
 * no buffer, two, or an unknown access or flag.
 *
 * # Safety
 *
 * - The operations can be launched again. They read only buffers of `uses`, write only those with
 *   `PINLANE_ACCESS_WRITE`, and stay inside them.
 * - They use nothing else, such as a library's workspace, that work of another branch uses.
 * - The caller neither ends the capture of the stream nor destroys it, and enqueues nothing there
 *   after the next call on this capture.
 * - `uses` is NULL or points to an array of `count` elements.
 * - `cuda_stream` is NULL or points to a variable.
 */
pinlane_status pinlane_capture_foreign(struct pinlane_capture *capture,
                                       const struct pinlane_use *uses,
                                       size_t count,
                                       void **cuda_stream);

/**
 * What is captured from now on goes on branch `branch`; a capture begins on branch 0. A launch
 * runs all branches at the same time, each in the order of its calls. Work that shares a buffer is
 * ordered all the same: an operation waits for every earlier one of the other branches that writes
 * what it uses, or uses what it writes. So any choice of branches gives the same result. Does not
 * block.
 *
 * Statuses: as for `pinlane_capture_upload`; `UNSUPPORTED` if other code has begun the capture.
 */
pinlane_status pinlane_capture_branch(struct pinlane_capture *capture,
                                      uint32_t branch);

/**
 * Ends the capture and writes its graph to `graph`, which `pinlane_graph_free` frees. Frees the
 * capture, also if this fails: its buffers are then the program's again. An empty capture makes an
 * empty graph. Waits for nothing: the first launch makes sure that earlier uses of the buffers are
 * complete.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `INVALID_VALUE` if `graph` is NULL: the capture goes on. Why
 * the capture failed, `FORKED_PROCESS`, `STREAM_CAPTURING`, `CUDA`: it has ended, without a graph.
 *
 * # Safety
 *
 * - `graph` is NULL or points to a variable.
 */
pinlane_status pinlane_capture_finish(struct pinlane_capture *capture,
                                      struct pinlane_graph **graph);

/**
 * Gives up the capture; NULL is a no-op. Its buffers are the program's again: in a host function a
 * little later, as after `pinlane_graph_free` there. Does not block.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a capture.
 */
pinlane_status pinlane_capture_free(struct pinlane_capture *capture);

/**
 * Begins a launch of work that was captured into a graph of other code, by `pinlane_capture_join`,
 * and writes a handle for `pinlane_foreign_end` to `foreign`. Launch the other code's graph on the
 * `cudaStream_t` of `stream`, then call `pinlane_foreign_end`. Until then other calls with the
 * graph get `BUSY`. Otherwise as `pinlane_graph_launch`.
 *
 * Statuses: as for `pinlane_graph_launch`; `INVALID_VALUE` if `foreign` is NULL.
 *
 * # Safety
 *
 * - Until `pinlane_foreign_end`, the caller enqueues the graph that the work was captured into, or
 *   an executable graph of it, once or more, on the stream; and no other work on the buffers.
 * - `foreign` is NULL or points to a variable.
 */
pinlane_status pinlane_graph_foreign_begin(struct pinlane_graph *graph,
                                           const struct pinlane_stream *stream,
                                           struct pinlane_foreign **foreign);

/**
 * Launches all captured work on `stream`, any stream of the graph's device, as one operation that
 * reads and writes what the work reads and writes: after conflicting uses of the buffers on any
 * stream, and after earlier launches. Does not block. `ticket` may be NULL.
 *
 * First takes back the buffers that were lent. The cost does not depend on how many others there
 * are.
 *
 * Statuses: `INVALID_HANDLE`, also if a buffer was freed while it was lent; `BUSY` if a buffer
 * that was lent is in use by another call; `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
 * `WRONG_THREAD`; `UNSUPPORTED` if other code has the executable graph: nothing was enqueued, and
 * what was lent still is. `CUDA`, `DEVICE_LOST`: the contents of what the work writes are
 * unspecified.
 *
 * # Safety
 *
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_graph_launch(struct pinlane_graph *graph,
                                    const struct pinlane_stream *stream,
                                    struct pinlane_ticket **ticket);

/**
 * Lends a buffer of the graph to the program until the next launch: until then every function
 * takes it, as if no graph had it. `pinlane_buffer_read` and `pinlane_buffer_write`, for example,
 * wait for the launches that use it, and copies are ordered after them. The next launch takes the
 * buffer back. Buffers that the work only reads can be read without this. Does not block.
 *
 * A buffer that is freed while it is lent is lost to the graph, which can then only be freed. The
 * graph has its address, so its memory stays until then. Memory of the caller's own cannot come
 * back before: `pinlane_buffer_free` returns `BUSY`.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `FORKED_PROCESS`; `INVALID_VALUE` if the graph does not name
 * the buffer.
 */
pinlane_status pinlane_graph_lend_buffer(struct pinlane_graph *graph,
                                         struct pinlane_buffer *buffer);

/**
 * As `pinlane_graph_lend_buffer`, for a buffer in device memory.
 *
 * Statuses: as for `pinlane_graph_lend_buffer`.
 */
pinlane_status pinlane_graph_lend_device_buffer(struct pinlane_graph *graph,
                                                struct pinlane_device_buffer *buffer);

/**
 * Puts `replacement`, of the same size, in the place of `buffer` in all launches to come. `buffer`
 * is the program's again, and knows of the launches that use it. Two buffers that take turns need
 * one graph. Does not block.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `LENGTH_MISMATCH`, `WRONG_DEVICE`, `FORKED_PROCESS`;
 * `INVALID_VALUE` if the graph does not name `buffer`, or names `replacement`; `UNSUPPORTED` if
 * other work than copies names the buffer, whose addresses are not known, or other code has the
 * executable graph: nothing has changed. `CUDA`: if the addresses that were changed cannot be
 * changed back either, launches get `UNSUPPORTED`.
 */
pinlane_status pinlane_graph_rebind_buffer(struct pinlane_graph *graph,
                                           struct pinlane_buffer *buffer,
                                           struct pinlane_buffer *replacement);

/**
 * As `pinlane_graph_rebind_buffer`, for buffers in the memory of one device.
 *
 * Statuses: as for `pinlane_graph_rebind_buffer`.
 */
pinlane_status pinlane_graph_rebind_device_buffer(struct pinlane_graph *graph,
                                                  struct pinlane_device_buffer *buffer,
                                                  struct pinlane_device_buffer *replacement);

/**
 * Writes the number of bytes that a launch moves or touches, at most, to `bytes`.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`; `INVALID_VALUE` if `bytes` is NULL.
 *
 * # Safety
 *
 * - `bytes` is NULL or points to a variable.
 */
pinlane_status pinlane_graph_bytes(const struct pinlane_graph *graph, size_t *bytes);

/**
 * Frees the graph; NULL is a no-op. Returns at once, even in the middle of a launch. Its buffers
 * are the program's again; the memory of those that were freed is reused when the device is done
 * with it. In a host function the graph is destroyed a little later, on another thread: until then
 * calls with its buffers return `BUSY`.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a graph.
 */
pinlane_status pinlane_graph_free(struct pinlane_graph *graph);

/**
 * Makes a pool for `device` and writes it to `pool`. The caller frees it with `pinlane_pool_free`.
 * `options` may be NULL: the defaults. Does not page-lock memory yet.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `INVALID_VALUE` if `pool` is NULL, the budget is
 * less than a page, the low watermark is above the high one, or for options of an unknown size,
 * page-locking or flag.
 *
 * # Safety
 *
 * - `options` is NULL or points to an initialised struct whose `size` member is right.
 * - `pool` is NULL or points to a variable.
 */
pinlane_status pinlane_pool_create(const struct pinlane_device *device,
                                   const struct pinlane_pool_options *options,
                                   struct pinlane_pool **pool);

/**
 * Writes another handle of the same pool to `clone`. The caller frees it with `pinlane_pool_free`.
 * For a part of a program that keeps the pool alive on its own. Does not block.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `clone` is NULL.
 *
 * # Safety
 *
 * - `clone` is NULL or points to a variable.
 */
pinlane_status pinlane_pool_clone(const struct pinlane_pool *pool,
                                  struct pinlane_pool **clone);

/**
 * Writes 1 to `same` if both handles are of one pool, else 0.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `same` is NULL.
 *
 * # Safety
 *
 * - `same` is NULL or points to a variable.
 */
pinlane_status pinlane_pool_is_same(const struct pinlane_pool *pool,
                                    const struct pinlane_pool *other,
                                    int32_t *same);

/**
 * Writes to `block_bytes` the size of the block that a request of `bytes` gets. At most an eighth
 * of the block is waste; requests of less than 2 KiB are rounded up to multiples of 256.
 *
 * Statuses: `INVALID_VALUE` if no block can hold that many bytes, or `block_bytes` is NULL.
 *
 * # Safety
 *
 * - `block_bytes` is NULL or points to a variable.
 */
pinlane_status pinlane_pool_block_bytes(size_t bytes,
                                        size_t *block_bytes);

/**
 * Gives free memory back to the system until `keep_bytes` of it are left, and writes the number of
 * bytes given back to `released_bytes`, which may be NULL. Keeps the most recently used memory.
 * Takes from the caches of all threads. Memory goes back only if all blocks of a slab are free.
 * Blocks while the CUDA runtime releases it; the runtime may wait for devices.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `UNSUPPORTED` inside a host function;
 * `INVALID_VALUE` if `released_bytes` is misaligned.
 *
 * # Safety
 *
 * - `released_bytes` is NULL or points to a variable.
 */
pinlane_status pinlane_pool_trim(const struct pinlane_pool *pool,
                                 size_t keep_bytes,
                                 size_t *released_bytes);

/**
 * Allocates `bytes` of page-locked memory, at least 1, and writes the address to `memory`: a
 * multiple of `alignment`, which is a power of two, at most 2 MiB. The caller gives it back with
 * `pinlane_pool_deallocate`, before the pool's last handle is freed: after that it stays allocated
 * forever. The contents are unspecified. Blocks as `pinlane_buffer_alloc`.
 *
 * This is for allocators, such as `std::pmr`, and for libraries that want an address. The memory
 * is plain: unlike a `pinlane_buffer`, it does not wait for a device that still uses it.
 * `pinlane_upload_slice` and `pinlane_download_slice` copy it at the full speed of the link,
 * `pinlane_upload_pinned` and `pinlane_download_pinned` without waiting. A forked child does not
 * have the memory, and must not touch it.
 *
 * Statuses: `INVALID_HANDLE`, `BUDGET_EXHAUSTED`, `OUT_OF_HOST_MEMORY`, `FORKED_PROCESS`;
 * `INVALID_VALUE` if `memory` is NULL, the size overflows, or for another `alignment`.
 *
 * # Safety
 *
 * - `memory` is NULL or points to a variable.
 */
pinlane_status pinlane_pool_allocate(const struct pinlane_pool *pool,
                                     size_t bytes,
                                     size_t alignment,
                                     void **memory);

/**
 * As `pinlane_pool_allocate`, but when the budget is spent it waits, for at most `microseconds`,
 * until there is room, as `pinlane_buffer_alloc_timeout` does. Status `TIMED_OUT`;
 * `BUDGET_EXHAUSTED` only if the request is larger than the budget, or than what is left of it
 * beside quarantined memory.
 *
 * # Safety
 *
 * - `memory` is NULL or points to a variable.
 */
pinlane_status pinlane_pool_allocate_timeout(const struct pinlane_pool *pool,
                                             size_t bytes,
                                             size_t alignment,
                                             uint64_t microseconds,
                                             void **memory);

/**
 * Gives back memory of `pinlane_pool_allocate`, by any handle of the same pool; NULL is a no-op.
 * Does not block. Copies of the memory by pinlane may be under way: the pool reuses it only when
 * they are complete. The caller's own device work on it must be complete, or recorded with
 * `pinlane_pool_record_use` (which may still run on another thread), because the pool may reuse
 * the memory at once. In a forked child it does nothing.
 *
 * Statuses: `INVALID_HANDLE`, also for memory that is not of this pool or was given back already;
 * `INVALID_VALUE` for an address inside an allocation. In both cases nothing is freed.
 *
 * # Safety
 *
 * - The memory is no longer used.
 */
pinlane_status pinlane_pool_deallocate(const struct pinlane_pool *pool,
                                       void *memory);

/**
 * Records that the caller's own CUDA calls on `stream` use memory of `pinlane_pool_allocate`.
 * After the memory is given back, the pool reuses it only when everything on the stream now is
 * complete. `memory` is any address in the allocation; the use counts for all of it. Call it after
 * that work is enqueued. For a `cudaStream_t`, borrow it once with `pinlane_stream_borrow`. Does
 * not block.
 *
 * This does not stop accesses of the host: the caller must know when they are safe.
 *
 * Statuses: `INVALID_HANDLE`, also for memory that is not allocated from this pool; `BUSY` while
 * another thread makes the same call; `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
 * `WRONG_THREAD`, `CUDA`.
 */
pinlane_status pinlane_pool_record_use(const struct pinlane_pool *pool,
                                       const void *memory,
                                       const struct pinlane_stream *stream);

/**
 * Frees the handle; NULL is a no-op. When the last handle of the pool and its last buffer are
 * freed, the memory goes back to the system; the call that frees last waits until the devices are
 * done with it. Memory from `pinlane_pool_allocate` that was not given back stays allocated
 * forever, because it may still be in use.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a pool.
 */
pinlane_status pinlane_pool_free(struct pinlane_pool *pool);

/**
 * Writes the pool's statistics to `stats`, whose `size` member must be set. Takes a short lock.
 * While other threads allocate or free, the parts need not add up.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `stats` is NULL or its size is unknown.
 *
 * # Safety
 *
 * - `stats` is NULL or points to a struct whose `size` member is set and right.
 */
pinlane_status pinlane_pool_get_stats(const struct pinlane_pool *pool,
                                      struct pinlane_pool_stats *stats);

/**
 * Writes the statistics of each block size, the smallest first, to `classes[0 .. capacity]`, and
 * the number of block sizes to `count`. If that is more than `capacity`, the rest is omitted. To
 * get the number, call it with `classes` NULL and a `capacity` of 0. Takes a short lock.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `count` is NULL, or `classes` is while `capacity`
 * is not 0.
 *
 * # Safety
 *
 * - `classes` is NULL or points to an array of `capacity` elements.
 * - `count` is NULL or points to a variable.
 */
pinlane_status pinlane_pool_get_class_stats(const struct pinlane_pool *pool,
                                            struct pinlane_class_stats *classes,
                                            size_t capacity,
                                            size_t *count);

/**
 * Writes the pool's statistics to `buffer`, as a text in `format`, one of `PINLANE_STATS_*`. At
 * most `capacity` bytes are written, with the terminating NUL; a longer text is truncated.
 * `needed`, which may be NULL, gets the number of bytes that the whole text needs. `buffer` may be
 * NULL if `capacity` is 0. The next text may need more bytes. Takes a short lock.
 *
 * Metrics for Prometheus have the label `pool` with the value `name`; NULL means an empty name.
 * The other formats ignore it. One response may describe a metric only once: for several pools use
 * `pinlane_pools_prometheus`. The metrics are gauges and counters: `pinlane_pool_live_bytes`,
 * `pinlane_pool_wait_seconds_total` and others, and `pinlane_pool_class_blocks` and others with a
 * second label, `block_bytes`.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` for an unknown format, or if `buffer` is NULL while
 * `capacity` is not 0.
 *
 * # Safety
 *
 * - `name` is NULL or points to a string.
 * - `buffer` is NULL or points to `capacity` bytes.
 * - `needed` is NULL or points to a variable.
 */
pinlane_status pinlane_pool_stats_text(const struct pinlane_pool *pool,
                                       int32_t format,
                                       const char *name,
                                       char *buffer,
                                       size_t capacity,
                                       size_t *needed);

/**
 * Writes the statistics of the `count` pools of `pools` to `buffer`, as one response in
 * Prometheus' text format: the metrics of `PINLANE_STATS_PROMETHEUS`, each described once. Those
 * of `pools[i]` have the label `pool` with the value `names[i]`; no two names are equal. `buffer`,
 * `capacity` and `needed` are as for `pinlane_pool_stats_text`. The arrays may be NULL if `count`
 * is 0.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if a name or an array is NULL, two names are equal,
 * or `buffer` is NULL while `capacity` is not 0.
 *
 * # Safety
 *
 * - `pools` is NULL or points to an array of `count` elements.
 * - `names` is NULL or points to an array of `count` elements, each NULL or a string.
 * - `buffer` is NULL or points to `capacity` bytes.
 * - `needed` is NULL or points to a variable.
 */
pinlane_status pinlane_pools_prometheus(const struct pinlane_pool *const *pools,
                                        const char *const *names,
                                        size_t count,
                                        char *buffer,
                                        size_t capacity,
                                        size_t *needed);

/**
 * Starts threads that pull batches from `producer` and copy them to the device of `stream`, for
 * work on that stream. Writes the pipeline to `prefetch`. The caller frees it with
 * `pinlane_prefetch_free`. `options` may be NULL: the defaults. Does not wait for the first batch.
 *
 * Batches that are filled, and those of a few KiB, go through blocks of `pool`, two for each
 * thread. Larger slices of pageable memory are copied as by `pinlane_upload_slice`.
 *
 * Statuses: `INVALID_HANDLE`, `STREAM_CAPTURING`, `WRONG_THREAD`, `FORKED_PROCESS`, `CUDA`,
 * `WRONG_DEVICE` if the pool and the stream belong to different emulated machines, or one of them
 * to a GPU; `UNSUPPORTED` if no thread can be started; `INVALID_VALUE` if `producer`, its `next`
 * or its `describe`, or `prefetch` is NULL, for a depth or number of workers out of range, or for
 * structs of an unknown size or flag. After an error no function of the producer is called any
 * more; some may have been called.
 *
 * # Safety
 *
 * - `producer` is NULL or points to an initialised struct whose `size` member is right. Its
 *   functions may be called as it says, on any thread, until `pinlane_prefetch_free` returns `OK`.
 *   They do not unwind. They write what it says.
 * - `options` is NULL or points to an initialised struct whose `size` member is right.
 * - `prefetch` is NULL or points to a variable.
 */
pinlane_status pinlane_prefetch_create(const struct pinlane_pool *pool,
                                       const struct pinlane_stream *stream,
                                       const struct pinlane_producer *producer,
                                       const struct pinlane_prefetch_options *options,
                                       struct pinlane_prefetch **prefetch);

/**
 * Writes the next batch to `batch`: a buffer in the memory of the device. The caller frees it with
 * `pinlane_device_buffer_free`, and finds its slices with `pinlane_device_batch_slice`. Blocks
 * until the copy of the batch is enqueued, and makes the stream wait, on the device, until it is
 * complete.
 *
 * All work on the stream is ordered after the copy, including work that pinlane does not know of.
 * Work on other streams is ordered if it uses the buffer, as with any buffer. Freeing the buffer
 * does not wait: its memory is reused for a later batch, after all work that is on the stream by
 * then.
 *
 * A failure takes the place of its batch, and the next call returns the next batch. Status
 * `PRODUCER` if the producer failed, `END` if there are no more batches, `CANCELLED` if another
 * thread frees the prefetch during the call.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY` while another call waits for a batch, `FORKED_PROCESS`,
 * `OUT_OF_DEVICE_MEMORY`, `BUDGET_EXHAUSTED`, `OUT_OF_HOST_MEMORY`, `DEVICE_LOST`, `CUDA`;
 * `INVALID_VALUE` if `batch` is NULL, or two slices of a batch have one name. `STREAM_CAPTURING`,
 * `WRONG_THREAD`, `UNSUPPORTED` inside a host function: the batch is kept for the next call.
 *
 * # Safety
 *
 * - `batch` is NULL or points to a variable.
 */
pinlane_status pinlane_prefetch_next(const struct pinlane_prefetch *prefetch,
                                     struct pinlane_device_buffer **batch);

/**
 * As `pinlane_prefetch_next`, but blocks for at most `microseconds`. Status `TIMED_OUT` if no
 * batch is ready then; the batch stays for a later call.
 *
 * # Safety
 *
 * - `batch` is NULL or points to a variable.
 */
pinlane_status pinlane_prefetch_next_timeout(const struct pinlane_prefetch *prefetch,
                                             uint64_t microseconds,
                                             struct pinlane_device_buffer **batch);

/**
 * As `pinlane_prefetch_next`, but passes the batch to `prefetched`, with `user`, when its copy is
 * enqueued. Does not block. Until then other calls for a batch get `BUSY`. `request`, which can
 * withdraw the call, may be NULL. After a withdrawal the batch stays for a later call.
 *
 * If this call succeeds, `prefetched` is called exactly once, perhaps before this call returns. If
 * it fails, `prefetched` is never called. `prefetched` gets the statuses of
 * `pinlane_prefetch_next`, and `CANCELLED`.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `FORKED_PROCESS`; `INVALID_VALUE` if `prefetched` is NULL;
 * `UNSUPPORTED` inside a host function.
 *
 * # Safety
 *
 * - `prefetched` may be called with `user`, on any thread, and does not unwind.
 * - `request` is NULL or points to a variable.
 */
pinlane_status pinlane_prefetch_next_async(const struct pinlane_prefetch *prefetch,
                                           pinlane_prefetched prefetched,
                                           void *user,
                                           struct pinlane_request **request);

/**
 * Writes the pipeline's counters to `progress`, whose `size` member must be set. Any thread may
 * call this at any time. Each counter is read separately, so while the pipeline runs they may not
 * match each other. Does not block.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `progress` is NULL or its size is unknown.
 *
 * # Safety
 *
 * - `progress` is NULL or points to a struct whose `size` member is set and right.
 */
pinlane_status pinlane_prefetch_get_progress(const struct pinlane_prefetch *prefetch,
                                             struct pinlane_prefetch_progress *progress);

/**
 * Ends the pipeline and frees the handle; NULL is a no-op. Blocks until the producer's functions
 * that are being called have returned, and every batch that was begun is released: then none is
 * called any more. Running copies are finished first, and may wait for work on the stream. Batches
 * that the consumer has stay valid. A call on another thread that waits for a batch returns
 * `CANCELLED`.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a prefetch; `UNSUPPORTED` inside
 * a function of the prefetch's own producer, or inside a host function: nothing has happened.
 */
pinlane_status pinlane_prefetch_free(struct pinlane_prefetch *prefetch);

/**
 * Writes to `index` the number of the batch, from 0, in the order in which the producer began
 * them.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `FORKED_PROCESS`; `INVALID_VALUE` if `batch` is not a buffer
 * of a prefetch, or `index` is NULL.
 *
 * # Safety
 *
 * - `index` is NULL or points to a variable.
 */
pinlane_status pinlane_device_batch_index(const struct pinlane_device_buffer *batch,
                                          uint64_t *index);

/**
 * Writes to `ticket` a ticket that is complete when the batch is on the device. The caller frees
 * it with `pinlane_ticket_free`. The stream of the prefetch waits for the batch anyway.
 *
 * Statuses: as for `pinlane_device_batch_index`.
 *
 * # Safety
 *
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_device_batch_ticket(const struct pinlane_device_buffer *batch,
                                           struct pinlane_ticket **ticket);

/**
 * Writes the number of the batch's slices to `count`.
 *
 * Statuses: as for `pinlane_device_batch_index`.
 *
 * # Safety
 *
 * - `count` is NULL or points to a variable.
 */
pinlane_status pinlane_device_batch_count(const struct pinlane_device_buffer *batch,
                                          size_t *count);

/**
 * Writes the name of slice `number` to `buffer`: at most `capacity` bytes with the terminating
 * NUL. A longer name is truncated. Writes to `needed`, which may be NULL, how many bytes the whole
 * name needs, with the NUL. `buffer` may be NULL if `capacity` is 0. Slices have the order in
 * which the producer described them.
 *
 * Statuses: as for `pinlane_device_batch_index`; `OUT_OF_RANGE` if there are fewer slices;
 * `INVALID_VALUE` also if `buffer` is NULL, or `needed` is misaligned.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to `capacity` bytes.
 * - `needed` is NULL or points to a variable.
 */
pinlane_status pinlane_device_batch_name(const struct pinlane_device_buffer *batch,
                                         size_t number,
                                         char *buffer,
                                         size_t capacity,
                                         size_t *needed);

/**
 * Writes to `offset` the offset of the slice with that name in the buffer, a multiple of 256 and
 * of its element's size, and to `bytes` its size. The name of an unnamed slice is its number.
 *
 * Statuses: as for `pinlane_device_batch_index`; `INVALID_VALUE` also if the batch has no slice of
 * that name, or a pointer is NULL.
 *
 * # Safety
 *
 * - `name` is NULL or points to a string.
 * - `offset` and `bytes` are each NULL or point to a variable.
 */
pinlane_status pinlane_device_batch_slice(const struct pinlane_device_buffer *batch,
                                          const char *name,
                                          size_t *offset,
                                          size_t *bytes);

/**
 * Makes a recording without devices, whose time begins now, and writes it to `recording`. The
 * caller frees it with `pinlane_recording_free`.
 *
 * Statuses: `FORKED_PROCESS`; `INVALID_VALUE` if `recording` is NULL.
 *
 * # Safety
 *
 * - `recording` is NULL or points to a variable.
 */
pinlane_status pinlane_recording_create(struct pinlane_recording **recording);

/**
 * Records the work of the device in `recording` from now on: on all its streams, in its pools, and
 * on helper threads. Several devices may share a recording. Blocks for a moment, to relate the
 * device's clock to the host's.
 *
 * A device that is not recorded pays one branch for each call. While it is recorded, each
 * operation of a stream has two more events.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `FORKED_PROCESS`; `INVALID_VALUE` while another recording
 * records the device, or if this one was stopped.
 */
pinlane_status pinlane_device_record(const struct pinlane_device *device,
                                     struct pinlane_recording *recording);

/**
 * Ends the recording, which can then be written. Blocks until all recorded work is complete. Does
 * nothing if the recording was stopped before.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `FORKED_PROCESS`, `UNSUPPORTED` inside a host function: the
 * recording continues.
 */
pinlane_status pinlane_recording_stop(struct pinlane_recording *recording);

/**
 * Writes the number of recorded spans to `spans`, and the number of missing ones to `missing`:
 * operations whose times are unknown (the device was lost, or the stream was being captured), and
 * spans beyond the first million. Either may be NULL.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`; `INVALID_VALUE` while the recording is running.
 *
 * # Safety
 *
 * - `spans` and `missing` are NULL or point to variables.
 */
pinlane_status pinlane_recording_counts(const struct pinlane_recording *recording,
                                        size_t *spans,
                                        size_t *missing);

/**
 * Writes the recording to the file at `path`, which ends with a NUL, in `format`, one of
 * `PINLANE_TRACE_*`. Replaces an existing file. Blocks as writing a file does. May be called
 * again, even with another format.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`; `INVALID_VALUE` while the recording is running, for an
 * unknown format, or if `path` is NULL; `IO` if the file cannot be written. A file that cannot be
 * written in full is removed.
 *
 * # Safety
 *
 * - `path` is NULL or points to a string that ends with a NUL.
 */
pinlane_status pinlane_recording_write(const struct pinlane_recording *recording,
                                       int32_t format,
                                       const char *path);

/**
 * Frees the recording; NULL is a no-op. A running recording ends, and its notes are dropped. Does
 * not block.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a recording.
 */
pinlane_status pinlane_recording_free(struct pinlane_recording *recording);

/**
 * Withdraws the request: its callback is called with `CANCELLED`, by a thread of pinlane. If the
 * outcome is known already, nothing happens: the callback gets it, or has received it. Does not
 * block.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`.
 */
pinlane_status pinlane_request_cancel(const struct pinlane_request *request);

/**
 * Frees the handle; NULL is a no-op. The request continues, and its callback is called.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a request.
 */
pinlane_status pinlane_request_free(struct pinlane_request *request);

/**
 * Copies `bytes` of pageable memory, from `src` on, to the caller's own device memory. Returns
 * when `src` may be reused; the ticket says when the data has arrived. Ordered on `stream`; the
 * caller orders other work on the device memory. `src` and `device_pointer` may be NULL if `bytes`
 * is 0; `ticket` may be NULL.
 *
 * A small copy, of at most 64 KiB unless `pinlane_device_set_staging` says otherwise, does not
 * block. A larger one goes through page-locked slots, which several threads fill while the device
 * copies. The call first waits until the stream has reached it, and returns when nearly all of the
 * data is on the device. Memory of a pool (`pinlane_pool_allocate`, or that of a buffer) does not
 * go through slots: the device copies it directly, and the call returns when the copy is complete.
 *
 * Statuses: `INVALID_HANDLE`, `STREAM_CAPTURING`, `FORKED_PROCESS`, `WRONG_THREAD`,
 * `OUT_OF_HOST_MEMORY` if no memory can be page-locked; `INVALID_VALUE` if a pointer is NULL or
 * the size overflows: nothing was enqueued. `CUDA`, `DEVICE_LOST`: the contents of the destination
 * are unspecified.
 *
 * # Safety
 *
 * - `src` is NULL or points to `bytes` readable bytes, which are not written until the call
 *   returns.
 * - `device_pointer` is device memory of the stream's device, of at least `bytes`, and stays
 *   allocated until the copy is complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_upload_slice(const struct pinlane_stream *stream,
                                    const void *src,
                                    void *device_pointer,
                                    size_t bytes,
                                    struct pinlane_ticket **ticket);

/**
 * Copies `bytes` from the caller's own device memory to pageable memory, from `dst` on. Returns
 * when they have arrived. Ordered on `stream`. Both pointers may be NULL if `bytes` is 0. Memory
 * of a pool is written as `pinlane_upload_slice` reads it. If the device is lost while it writes
 * such memory, and every way to wait for it fails, the process aborts.
 *
 * Statuses: as for `pinlane_upload_slice`.
 *
 * # Safety
 *
 * - `device_pointer` is device memory of the stream's device, of at least `bytes`.
 * - `dst` is NULL or points to `bytes` writable bytes, which no other code accesses until the call
 *   returns.
 */
pinlane_status pinlane_download_slice(const struct pinlane_stream *stream,
                                      const void *device_pointer,
                                      void *dst,
                                      size_t bytes);

/**
 * As `pinlane_upload_slice`, to `destination` from `destination_offset` on. Also ordered after
 * conflicting uses of the buffer on other streams.
 *
 * Statuses: as for `pinlane_upload_slice`; `OUT_OF_RANGE`, `BUSY`, `WRONG_DEVICE`: nothing was
 * enqueued.
 *
 * # Safety
 *
 * - `src` is NULL or points to `bytes` readable bytes, which are not written until the call
 *   returns.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_upload_slice(const struct pinlane_stream *stream,
                                                  const void *src,
                                                  struct pinlane_device_buffer *destination,
                                                  size_t destination_offset,
                                                  size_t bytes,
                                                  struct pinlane_ticket **ticket);

/**
 * As `pinlane_download_slice`, from `source` from `source_offset` on. Also ordered after
 * conflicting uses of the buffer on other streams.
 *
 * Statuses: as for `pinlane_device_buffer_upload_slice`.
 *
 * # Safety
 *
 * - `dst` is NULL or points to `bytes` writable bytes, which no other code accesses until the call
 *   returns.
 */
pinlane_status pinlane_device_buffer_download_slice(const struct pinlane_stream *stream,
                                                    const struct pinlane_device_buffer *source,
                                                    size_t source_offset,
                                                    void *dst,
                                                    size_t bytes);

/**
 * Copies `bytes` of memory of a pool, from `src` on, to the caller's own device memory. Does not
 * block. For memory that is known only by its address: memory of `pinlane_pool_allocate`, for
 * example of a container, or of a buffer of a pool. The pool may be of any device. Ordered on
 * `stream`, and after the copies to that memory that pinlane has enqueued before; the caller
 * orders other work on the device memory. `src` and `device_pointer` may be NULL if `bytes` is 0;
 * `ticket` may be NULL.
 *
 * The memory may be freed right after the call: the pool reuses it only when the copy is complete.
 * It must not be written before the ticket is complete.
 *
 * Statuses: `INVALID_HANDLE`, `STREAM_CAPTURING`, `FORKED_PROCESS`, `WRONG_THREAD`;
 * `INVALID_VALUE` if a pointer is NULL, the size overflows, or the bytes do not lie in one
 * allocation of a pool: nothing was enqueued. `CUDA`, `DEVICE_LOST`: the contents of the
 * destination are unspecified.
 *
 * # Safety
 *
 * - `src` is NULL, or `bytes` from `src` on are not freed before the call returns.
 * - They are not written until the copy is complete.
 * - `device_pointer` is device memory of the stream's device, of at least `bytes`, and stays
 *   allocated until the copy is complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_upload_pinned(const struct pinlane_stream *stream,
                                     const void *src,
                                     void *device_pointer,
                                     size_t bytes,
                                     struct pinlane_ticket **ticket);

/**
 * Copies `bytes` from the caller's own device memory to memory of a pool, from `dst` on. Does not
 * block. The memory must not be read or written before the ticket is complete. Otherwise as
 * `pinlane_upload_pinned`; ordered after all copies from and to that memory that pinlane has
 * enqueued before.
 *
 * Statuses: as for `pinlane_upload_pinned`.
 *
 * # Safety
 *
 * - `device_pointer` is device memory of the stream's device, of at least `bytes`, and stays
 *   allocated until the copy is complete.
 * - `dst` is NULL, or `bytes` from `dst` on are not freed before the call returns.
 * - They are not accessed until the copy is complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_download_pinned(const struct pinlane_stream *stream,
                                       const void *device_pointer,
                                       void *dst,
                                       size_t bytes,
                                       struct pinlane_ticket **ticket);

/**
 * As `pinlane_upload_pinned`, to `destination` from `destination_offset` on. Also ordered after
 * conflicting uses of the buffer on other streams.
 *
 * Statuses: as for `pinlane_upload_pinned`; `OUT_OF_RANGE`, `BUSY`, `WRONG_DEVICE`: nothing was
 * enqueued.
 *
 * # Safety
 *
 * - `src` is NULL, or `bytes` from `src` on are not freed before the call returns.
 * - They are not written until the copy is complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_upload_pinned(const struct pinlane_stream *stream,
                                                   const void *src,
                                                   struct pinlane_device_buffer *destination,
                                                   size_t destination_offset,
                                                   size_t bytes,
                                                   struct pinlane_ticket **ticket);

/**
 * As `pinlane_download_pinned`, from `source` from `source_offset` on. Also ordered after
 * conflicting uses of the buffer on other streams.
 *
 * Statuses: as for `pinlane_device_buffer_upload_pinned`.
 *
 * # Safety
 *
 * - `dst` is NULL, or `bytes` from `dst` on are not freed before the call returns.
 * - They are not accessed until the copy is complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_download_pinned(const struct pinlane_stream *stream,
                                                     const struct pinlane_device_buffer *source,
                                                     size_t source_offset,
                                                     void *dst,
                                                     size_t bytes,
                                                     struct pinlane_ticket **ticket);

/**
 * Sets how copies of pageable memory are staged on `device`, for all its handles. Call it right
 * after the device is opened: after the first such copy it fails. Allocates nothing.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `INVALID_VALUE` after the first copy, if `options`
 * is NULL or has an unknown size or flag, or if the sizes are out of range: a slot has at least
 * 4096 bytes, the ring has 2 to 4096 slots, the first portion and a unit have at least 1024 bytes,
 * and the first portion fits in a slot.
 *
 * # Safety
 *
 * - `options` is NULL or points to an initialised struct whose `size` member is right.
 */
pinlane_status pinlane_device_set_staging(const struct pinlane_device *device,
                                          const struct pinlane_staging_options *options);

/**
 * Prepares large copies of pageable memory and of files in advance, on an extra thread: page-locks
 * the memory of the staging options (32 MiB by default), and starts copy threads. Otherwise the
 * first such copy waits for that. Returns at once, so the program can read a header or allocate
 * device memory at the same time. Call it after `pinlane_device_set_staging`. If it fails on that
 * thread, the first copy tries again and reports the error. Calling it again is harmless.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`.
 */
pinlane_status pinlane_device_warm_up(const struct pinlane_device *device);

/**
 * Makes this the copy team of the process, which all devices share. Running copies finish with the
 * former team. `options` may be NULL: the defaults. Threads start when the first large copy needs
 * them.
 *
 * Statuses: `FORKED_PROCESS`; `INVALID_VALUE` for more than 256 threads, for cores that do not
 * exist, for spinning longer than a second, or for options of an unknown size or flag.
 *
 * # Safety
 *
 * - `options` is NULL or points to an initialised struct whose `size` member is right, and whose
 *   `cores` is NULL or points to an array of `core_count` elements.
 */
pinlane_status pinlane_copy_team_install(const struct pinlane_copy_team_options *options);

/**
 * The message of this thread's last pinlane call that failed: which call, what was found, what to
 * do. Empty if none has failed. Never NULL. Valid until the thread's next pinlane call. While the
 * thread ends (in destructors of thread-local variables, or after `main`) it contains only the
 * meaning of the status.
 */
const char *pinlane_last_error(void);

/**
 * Makes `message` this thread's last message, as if a call had failed with `status`, and returns
 * `status`. For wrappers in other languages with checks of their own. The text is copied. NULL
 * means the meaning of the status.
 *
 * # Safety
 *
 * - `message` is NULL or points to a string.
 */
pinlane_status pinlane_set_last_error(pinlane_status status,
                                      const char *message);

/**
 * The `cudaError_t` behind this thread's last pinlane call that failed; 0 if the CUDA runtime was
 * not the cause. The runtime's own last-error slot is never touched.
 */
int32_t pinlane_last_cuda_error(void);

/**
 * What the program's own producer returned, if it caused this thread's last failed pinlane call; 0
 * if no function of a `pinlane_producer` was the cause.
 */
int32_t pinlane_last_producer_error(void);

/**
 * The name of a status, such as "PINLANE_STATUS_BUSY", or "PINLANE_STATUS_UNKNOWN" for a number
 * that is not a status. A constant string, never NULL.
 */
const char *pinlane_status_name(pinlane_status status);

/**
 * The version of the library, as 1000000 * major + 1000 * minor + patch. Compare it with
 * `PINLANE_VERSION`, the version of the header.
 */
uint32_t pinlane_version(void);

/**
 * Creates a stream on `device` and writes it to `stream`. The caller frees it with
 * `pinlane_stream_free`. `options` may be NULL: a non-blocking stream of default priority.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`, `CUDA`; `INVALID_VALUE` if `stream` is NULL, or
 * for options of an unknown size or flag.
 *
 * # Safety
 *
 * - `options` is NULL or points to an initialised struct whose `size` member is right.
 * - `stream` is NULL or points to a variable.
 */
pinlane_status pinlane_stream_create(const struct pinlane_device *device,
                                     const struct pinlane_stream_options *options,
                                     struct pinlane_stream **stream);

/**
 * Borrows a `cudaStream_t` of the caller, of `device`, and writes it to `stream`. The caller frees
 * it with `pinlane_stream_free`, which does not destroy the CUDA stream. The values 0 and 1 are
 * the legacy default stream. 2 is the per-thread default stream of the calling thread; another
 * thread that uses it gets `WRONG_THREAD`.
 *
 * The CUDA stream must outlive the handle and the work that is enqueued through it.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `stream` is NULL.
 *
 * # Safety
 *
 * - `cuda_stream` is a stream of this device and of the CUDA runtime that pinlane is linked with.
 * - No capture of it begins while a call with the handle is enqueuing work.
 * - `stream` is NULL or points to a variable.
 */
pinlane_status pinlane_stream_borrow(const struct pinlane_device *device,
                                     void *cuda_stream,
                                     struct pinlane_stream **stream);

/**
 * Writes the `cudaStream_t` to `cuda_stream`. It is valid until the handle is freed. Begin a
 * capture of it only while no call with the handle is enqueuing work: only a call that begins
 * later can return `STREAM_CAPTURING`.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `cuda_stream` is NULL.
 *
 * # Safety
 *
 * - `cuda_stream` is NULL or points to a variable.
 */
pinlane_status pinlane_stream_native(const struct pinlane_stream *stream, void **cuda_stream);

/**
 * Writes to `ordinal` the number of the device that the stream belongs to.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `ordinal` is NULL.
 *
 * # Safety
 *
 * - `ordinal` is NULL or points to a variable.
 */
pinlane_status pinlane_stream_device_ordinal(const struct pinlane_stream *stream,
                                             int32_t *ordinal);

/**
 * Writes to `device` the device that the stream belongs to. The caller frees it with
 * `pinlane_device_free`.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `INVALID_VALUE` if `device` is NULL.
 *
 * # Safety
 *
 * - `device` is NULL or points to a variable.
 */
pinlane_status pinlane_stream_device(const struct pinlane_stream *stream,
                                     struct pinlane_device **device);

/**
 * Blocks until everything that was enqueued on the stream before the call is complete.
 *
 * Statuses: `INVALID_HANDLE`, `STREAM_CAPTURING`, `FORKED_PROCESS`, `WRONG_THREAD`, or the error
 * of the work or the device.
 */
pinlane_status pinlane_stream_synchronize(const struct pinlane_stream *stream);

/**
 * Writes a ticket for everything enqueued on the stream so far to `ticket`. The caller frees it
 * with `pinlane_ticket_free`. Does not block. If `ticket` is NULL, nothing is written.
 *
 * Statuses: `INVALID_HANDLE`, `STREAM_CAPTURING`, `FORKED_PROCESS`, `WRONG_THREAD`, `CUDA`.
 *
 * # Safety
 *
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_stream_record(const struct pinlane_stream *stream,
                                     struct pinlane_ticket **ticket);

/**
 * Makes later work of `stream` wait, on the device, for the operation of `ticket`. Does not block.
 * Uses of buffers are ordered without it.
 *
 * Statuses: `INVALID_HANDLE`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
 * `WRONG_THREAD`, `CUDA`.
 */
pinlane_status pinlane_stream_wait(const struct pinlane_stream *stream,
                                   const struct pinlane_ticket *ticket);

/**
 * Keeps the stream busy for about `nanoseconds` of device time, at most 10 s, for tests and
 * benchmarks of overlap. Does not block. `ticket` may be NULL.
 *
 * Statuses: `INVALID_HANDLE`, `INVALID_VALUE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
 * `WRONG_THREAD`, `CUDA`.
 *
 * # Safety
 *
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_stream_busy(const struct pinlane_stream *stream,
                                   uint64_t nanoseconds,
                                   struct pinlane_ticket **ticket);

/**
 * Calls `function` with `user` on a thread of the CUDA runtime, after all earlier work of the
 * stream is complete. Later work of the stream waits for it. Does not block. `ticket` may be NULL.
 *
 * If this call succeeds, the function is called once, or never after an error of the device. If
 * this call fails, it is not called.
 *
 * The function must not wait for device work. CUDA calls are forbidden in it, and pinlane's get
 * `UNSUPPORTED`. It may free handles, but not buffers of the caller's own memory. Buffers that it
 * accesses must not be in use elsewhere, because the stream's order does not protect accesses of
 * the host.
 *
 * Statuses: `INVALID_HANDLE`, `STREAM_CAPTURING`, `FORKED_PROCESS`, `WRONG_THREAD`, `CUDA`,
 * `UNSUPPORTED` inside a host function; `INVALID_VALUE` if `function` is NULL.
 *
 * # Safety
 *
 * - `function` may be called with `user`, on any thread, and does not unwind.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_stream_launch_host(const struct pinlane_stream *stream,
                                          pinlane_host_function function,
                                          void *user,
                                          struct pinlane_ticket **ticket);

/**
 * Makes later work of `stream` wait, on the device, for the work that `cuda_event`, a
 * `cudaEvent_t` of the caller, captured when it was last recorded. The event may belong to any
 * device, and may be destroyed or recorded again when the call has returned. Does not block.
 *
 * Statuses: `INVALID_HANDLE`, `STREAM_CAPTURING`, `FORKED_PROCESS`, `WRONG_THREAD`, `CUDA`;
 * `INVALID_VALUE` if `cuda_event` is NULL.
 *
 * # Safety
 *
 * - `cuda_event` is NULL or an event of the CUDA driver that pinlane uses, and not destroyed.
 */
pinlane_status pinlane_stream_wait_event(const struct pinlane_stream *stream, void *cuda_event);

/**
 * Captures everything that was enqueued on `stream` so far in `cuda_event`, a `cudaEvent_t` of the
 * caller: a wait for the event waits for that work. Does not block.
 *
 * Statuses: as for `pinlane_stream_wait_event`; `CUDA` also for an event of another device.
 *
 * # Safety
 *
 * - `cuda_event` is NULL or an event of the CUDA driver that pinlane uses, and not destroyed.
 */
pinlane_status pinlane_stream_record_event(const struct pinlane_stream *stream,
                                           void *cuda_event);

/**
 * Frees the handle; NULL is a no-op. Returns at once: enqueued work is still executed, and the
 * buffers that it uses stay alive until then.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a stream.
 */
pinlane_status pinlane_stream_free(struct pinlane_stream *stream);

/**
 * Blocks until the operation is complete. Its effects are then visible to the calling thread.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`, or the error of the operation or the device.
 */
pinlane_status pinlane_ticket_wait(const struct pinlane_ticket *ticket);

/**
 * As `pinlane_ticket_wait`, but blocks for at most `microseconds`. Status `TIMED_OUT` if the
 * operation is still pending then.
 */
pinlane_status pinlane_ticket_wait_timeout(const struct pinlane_ticket *ticket,
                                           uint64_t microseconds);

/**
 * Writes 1 to `done` if the operation is complete, 0 if it is pending. Does not block.
 *
 * Statuses: as for `pinlane_ticket_wait`; `INVALID_VALUE` if `done` is NULL.
 *
 * # Safety
 *
 * - `done` is NULL or points to a variable.
 */
pinlane_status pinlane_ticket_is_done(const struct pinlane_ticket *ticket, int32_t *done);

/**
 * Calls `completed` with `user` when the operation of `ticket` is complete, or has failed. Does
 * not block. The ticket may be freed before. `request`, which can withdraw the call, may be NULL.
 *
 * If this call succeeds, `completed` is called exactly once, perhaps before this call returns. If
 * it fails, `completed` is never called.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `INVALID_VALUE` if `completed` is NULL;
 * `UNSUPPORTED` inside a host function, or if no thread can be started.
 *
 * # Safety
 *
 * - `completed` may be called with `user`, on any thread, and does not unwind.
 * - `request` is NULL or points to a variable.
 */
pinlane_status pinlane_ticket_on_complete(const struct pinlane_ticket *ticket,
                                          pinlane_completed completed,
                                          void *user,
                                          struct pinlane_request **request);

/**
 * Frees the handle; NULL is a no-op. The operation continues.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a ticket.
 */
pinlane_status pinlane_ticket_free(struct pinlane_ticket *ticket);

/**
 * Copies `bytes` from `buffer`, from `offset` on, to the caller's own device memory. Does not
 * block. Ordered on `stream`, and after device writes to the buffer on other streams; the caller
 * orders other work on the device memory. `ticket` may be NULL.
 *
 * Statuses: `INVALID_HANDLE`, `OUT_OF_RANGE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`,
 * `FORKED_PROCESS`, `WRONG_THREAD`: nothing was enqueued; `INVALID_VALUE` if `device_pointer` is
 * NULL; `CUDA`, `DEVICE_LOST`: the contents of the destination are unspecified.
 *
 * # Safety
 *
 * - `device_pointer` is device memory of the stream's device, of at least `bytes`, and stays
 *   allocated until the copy is complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_upload(const struct pinlane_stream *stream,
                              const struct pinlane_buffer *buffer,
                              size_t offset,
                              void *device_pointer,
                              size_t bytes,
                              struct pinlane_ticket **ticket);

/**
 * Copies `bytes` from the caller's own device memory to `buffer`, from `offset` on. Does not
 * block. Ordered on `stream`, and after every use of the buffer on other streams. `ticket` may be
 * NULL.
 *
 * Statuses: as for `pinlane_upload`.
 *
 * # Safety
 *
 * - `device_pointer` is device memory of the stream's device, of at least `bytes`, and stays
 *   allocated until the copy is complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_download(const struct pinlane_stream *stream,
                                const void *device_pointer,
                                struct pinlane_buffer *buffer,
                                size_t offset,
                                size_t bytes,
                                struct pinlane_ticket **ticket);

/**
 * Copies `bytes` from `source`, from `source_offset` on, to `destination`, from
 * `destination_offset` on. Does not block. Ordered on `stream`, and after conflicting uses of both
 * buffers on any stream. `ticket` may be NULL.
 *
 * Statuses: as for `pinlane_upload`.
 *
 * # Safety
 *
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_upload(const struct pinlane_stream *stream,
                                            const struct pinlane_buffer *source,
                                            size_t source_offset,
                                            struct pinlane_device_buffer *destination,
                                            size_t destination_offset,
                                            size_t bytes,
                                            struct pinlane_ticket **ticket);

/**
 * Copies `bytes` from `source`, from `source_offset` on, to `destination`, from
 * `destination_offset` on. Does not block. Ordered as `pinlane_device_buffer_upload`.
 * `pinlane_buffer_read` of the destination waits for the copy. `ticket` may be NULL.
 *
 * Statuses: as for `pinlane_upload`.
 *
 * # Safety
 *
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_download(const struct pinlane_stream *stream,
                                              const struct pinlane_device_buffer *source,
                                              size_t source_offset,
                                              struct pinlane_buffer *destination,
                                              size_t destination_offset,
                                              size_t bytes,
                                              struct pinlane_ticket **ticket);

/**
 * Copies `bytes` between two device buffers, of one device or of two; `stream` belongs to one of
 * them. Does not block. Ordered as `pinlane_device_buffer_upload`. `ticket` may be NULL.
 *
 * Statuses: as for `pinlane_upload`; `INVALID_VALUE` if both are the same buffer.
 *
 * # Safety
 *
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_copy(const struct pinlane_stream *stream,
                                          const struct pinlane_device_buffer *source,
                                          size_t source_offset,
                                          struct pinlane_device_buffer *destination,
                                          size_t destination_offset,
                                          size_t bytes,
                                          struct pinlane_ticket **ticket);

/**
 * Repeats the `pattern_bytes` bytes at `pattern`, 1 to 64, over `bytes` of the buffer from
 * `offset` on; `bytes` must be a multiple of `pattern_bytes`. The pattern may be reused when the
 * call returns. Does not block. Ordered as `pinlane_device_buffer_upload`. `ticket` may be NULL.
 *
 * Statuses: as for `pinlane_upload`; `LENGTH_MISMATCH`; `INVALID_VALUE` if `pattern` is NULL;
 * `UNSUPPORTED` for patterns of more than 64 bytes.
 *
 * # Safety
 *
 * - `pattern` is NULL or points to `pattern_bytes` bytes.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_fill(const struct pinlane_stream *stream,
                                          struct pinlane_device_buffer *buffer,
                                          size_t offset,
                                          size_t bytes,
                                          const void *pattern,
                                          size_t pattern_bytes,
                                          struct pinlane_ticket **ticket);

/**
 * Writes the 64-bit checksum of `bytes` of `buffer`, from `offset` on, to the 8 bytes of `sum`
 * from `sum_offset` on, a multiple of 8. Both buffers are on the stream's device. The result
 * equals `pinlane_checksum` of the same bytes. Does not block. Ordered as
 * `pinlane_device_buffer_upload`. `ticket` may be NULL.
 *
 * Statuses: as for `pinlane_upload`; `INVALID_VALUE` if `sum_offset` is not a multiple of 8, or
 * both are the same buffer, or `sum` is borrowed or imported memory whose address is not a
 * multiple of 8.
 *
 * # Safety
 *
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_checksum(const struct pinlane_stream *stream,
                                              const struct pinlane_device_buffer *buffer,
                                              size_t offset,
                                              size_t bytes,
                                              struct pinlane_device_buffer *sum,
                                              size_t sum_offset,
                                              struct pinlane_ticket **ticket);

/**
 * Writes the 64-bit checksum of the `bytes` bytes at `data`, in host memory, to `sum`. Runs on the
 * calling thread. `data` may be NULL if `bytes` is 0.
 *
 * Statuses: `INVALID_VALUE` if `data` or `sum` is NULL.
 *
 * # Safety
 *
 * - `data` is NULL or points to `bytes` readable bytes.
 * - `sum` is NULL or points to a variable.
 */
pinlane_status pinlane_checksum(const void *data,
                                size_t bytes,
                                uint64_t *sum);

/* Initialisers of the structs that begin with their size. */
#define PINLANE_BATCH_OPTIONS_INIT \
  { sizeof(pinlane_batch_options), PINLANE_ROUTE_AUTOMATIC, 0 }
#define PINLANE_INDICES_INIT \
  { sizeof(pinlane_indices), PINLANE_INDEX_U32, 0, NULL, 0, NULL, 0 }
#define PINLANE_DLPACK_OPTIONS_INIT \
  { sizeof(pinlane_dlpack_options), NULL, NULL, 0, 1, 8, 1, 0, PINLANE_DLPACK_CPU, 0, NULL }
#define PINLANE_EXPLORATION_INIT \
  { sizeof(pinlane_exploration), 0, 0, 1, 1000, NULL, 1, 0 }
#define PINLANE_EXPLORED_INIT \
  { sizeof(pinlane_explored), 0, 0, 0, 0, 0, 0 }
#define PINLANE_EMULATOR_OPTIONS_INIT \
  { sizeof(pinlane_emulator_options), 0, 1073741824, PINLANE_EXECUTION_EAGER, 0, 0, NULL, 0, \
    3, 0, 0 }
#define PINLANE_EMULATOR_USAGE_INIT \
  { sizeof(pinlane_emulator_usage), 0, 0, 0, 0, 0, 0, 0, 0 }
#define PINLANE_POOL_OPTIONS_INIT \
  { sizeof(pinlane_pool_options), 0, 0, 0, 0, 0, PINLANE_PAGE_LOCKING_REGISTER, 0, 0, 0 }
#define PINLANE_POOL_STATS_INIT \
  { sizeof(pinlane_pool_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
    0, 0, 0, 0 }
#define PINLANE_PREFETCH_OPTIONS_INIT \
  { sizeof(pinlane_prefetch_options), 0, 0, 0, 0 }
#define PINLANE_PREFETCH_PROGRESS_INIT \
  { sizeof(pinlane_prefetch_progress), 0, 0, 0, 0 }
#define PINLANE_PRODUCER_INIT \
  { sizeof(pinlane_producer), NULL, NULL, NULL, NULL, NULL }
#define PINLANE_STAGING_OPTIONS_INIT \
  { sizeof(pinlane_staging_options), 0, 0, 0, 0, 0, 0, 0, 0 }
#define PINLANE_COPY_TEAM_OPTIONS_INIT \
  { sizeof(pinlane_copy_team_options), NULL, 0, 0, 0, 0, 0, 0 }
#define PINLANE_STREAM_OPTIONS_INIT \
  { sizeof(pinlane_stream_options), 0, 0 }

/**
 * Each writes what the `_INIT` macro of its struct holds, for languages that have no macros. `size`
 * is the size of the struct in the caller's header: `sizeof *pointer`. No more bytes are written.
 *
 * Statuses: `INVALID_VALUE` if `pointer` is NULL or misaligned, or for a size that no header of
 * this library or an older one had.
 *
 * # Safety
 *
 * - `pointer` is NULL or points to `size` bytes.
 */
pinlane_status pinlane_batch_options_init(pinlane_batch_options *pointer, size_t size);
pinlane_status pinlane_indices_init(pinlane_indices *pointer, size_t size);
pinlane_status pinlane_dlpack_options_init(pinlane_dlpack_options *pointer, size_t size);
pinlane_status pinlane_exploration_init(pinlane_exploration *pointer, size_t size);
pinlane_status pinlane_explored_init(pinlane_explored *pointer, size_t size);
pinlane_status pinlane_emulator_options_init(pinlane_emulator_options *pointer, size_t size);
pinlane_status pinlane_emulator_usage_init(pinlane_emulator_usage *pointer, size_t size);
pinlane_status pinlane_pool_options_init(pinlane_pool_options *pointer, size_t size);
pinlane_status pinlane_pool_stats_init(pinlane_pool_stats *pointer, size_t size);
pinlane_status pinlane_prefetch_options_init(pinlane_prefetch_options *pointer, size_t size);
pinlane_status pinlane_prefetch_progress_init(pinlane_prefetch_progress *pointer, size_t size);
pinlane_status pinlane_producer_init(pinlane_producer *pointer, size_t size);
pinlane_status pinlane_staging_options_init(pinlane_staging_options *pointer, size_t size);
pinlane_status pinlane_copy_team_options_init(pinlane_copy_team_options *pointer, size_t size);
pinlane_status pinlane_stream_options_init(pinlane_stream_options *pointer, size_t size);

#ifdef __cplusplus
} // extern "C"
#endif

#endif /* PINLANE_PINLANE_H */
