/* pinlane: page-locked memory and asynchronous copies between host and GPU.
 * Generated from src/capi by cbindgen: change it there.
 *
 * Conventions
 *
 * - A function returns a status; PINLANE_STATUS_OK is 0. Names in "Statuses" lack their prefix,
 *   PINLANE_STATUS_. The message of a failed call is in pinlane_last_error(), per thread.
 * - Arguments: what is acted on first, then inputs, then outputs. Outputs are written only on
 *   success. NULL, stale and foreign handles, and misaligned pointers, give a status.
 * - Handles are opaque and no pointers: do not dereference them. Each type has one function that
 *   frees it; NULL is then a no-op. Objects keep alive what they are made from, so that handles
 *   can be freed in any order.
 * - Sizes, offsets and lengths are in bytes. "Does not block" is about the host: work is enqueued,
 *   and executed in the order of its stream.
 * - Any thread may call any function, unless its comment says otherwise.
 * - Streams cross as void *, a cudaStream_t: 0 and 1 are the legacy default stream, 2 is the
 *   per-thread default stream.
 * - Arrays of copies are read before the call returns. Their destinations must not overlap.
 * - Rust's Prefetch has no form in C: it is made of closures and threads of Rust.
 * - Under "Safety" stands what pinlane cannot check.
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
/* Initialisers of the structs that begin with their size. */
#define PINLANE_EMULATOR_OPTIONS_INIT \
  { sizeof(pinlane_emulator_options), 0, (size_t)1 << 30, PINLANE_EXECUTION_EAGER, 0 }
#define PINLANE_STREAM_OPTIONS_INIT { sizeof(pinlane_stream_options), 0, 0 }
#define PINLANE_POOL_OPTIONS_INIT \
  { sizeof(pinlane_pool_options), 0, 0, 0, 0, 0, PINLANE_PAGE_LOCKING_REGISTER, 0, 0, 0 }
#define PINLANE_BATCH_OPTIONS_INIT { sizeof(pinlane_batch_options), PINLANE_PATH_NONE, 0 }
#define PINLANE_PLAN_INIT { sizeof(pinlane_plan), { 0, 0, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0, 0 } }
#define PINLANE_STAGING_OPTIONS_INIT \
  { sizeof(pinlane_staging_options), 0, 0, 0, 0, 0, 0, 0, 0 }
#define PINLANE_COPY_TEAM_OPTIONS_INIT \
  { sizeof(pinlane_copy_team_options), NULL, 0, 0, 0, 0, 0, 0 }
#define PINLANE_POOL_STATS_INIT \
  { sizeof(pinlane_pool_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }


/**
 * Emulated operations run as soon as they can.
 */
#define PINLANE_EXECUTION_EAGER 0

/**
 * Emulated operations run only when somebody waits: the latest that CUDA allows.
 */
#define PINLANE_EXECUTION_LAZY 1

/**
 * The file is read past the system's page cache (`O_DIRECT`): for files that are larger than
 * memory, or read once.
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
 * No path: none is forced, or there is nothing to copy.
 */
#define PINLANE_PATH_NONE 0

/**
 * One `cudaMemcpyAsync` for each run of copies that follow each other. Best for long ones.
 */
#define PINLANE_PATH_COPIES 1

/**
 * One `cudaMemcpyBatchAsync` for many, where the driver has it (CUDA 12.8). Not on the legacy
 * default stream.
 */
#define PINLANE_PATH_BATCH 2

/**
 * Packed together, they cross in one copy; a kernel takes them apart, or packs them. For ordinary
 * memory.
 */
#define PINLANE_PATH_PACKED 3

/**
 * A kernel fetches them out of page-locked memory over the bus. Not for downloads.
 */
#define PINLANE_PATH_PULL 4

/**
 * Memory is taken from the system with huge pages, on the device's NUMA node, touched by several
 * threads, and registered with CUDA. Where that is not possible the runtime allocates it.
 */
#define PINLANE_PAGE_LOCKING_REGISTER 0

/**
 * The CUDA runtime allocates memory.
 */
#define PINLANE_PAGE_LOCKING_ALLOCATE 1

/**
 * Memory is mapped into the address space of the devices. With unified addressing it is anyhow.
 */
#define PINLANE_POOL_MAPPED 1

/**
 * Memory is write-combined: the CPU reads it many times slower, so that it is for buffers that the
 * host only writes, front to back. The runtime allocates it then.
 */
#define PINLANE_POOL_WRITE_COMBINED 2

/**
 * Threads keep no blocks for themselves: every allocation takes the pool's lock.
 */
#define PINLANE_POOL_NO_THREAD_CACHES 4

/**
 * Every copy goes through the slots, however small.
 */
#define PINLANE_STAGING_NO_DIRECT 1

/**
 * No upload is written past the cache.
 */
#define PINLANE_STAGING_NO_STREAMING 2

/**
 * No threads: every caller copies alone.
 */
#define PINLANE_COPY_TEAM_ALONE 1

/**
 * Threads sleep as soon as they have nothing to do.
 */
#define PINLANE_COPY_TEAM_NO_SPIN 2

/**
 * The stream waits for the legacy default stream, and that stream for it.
 */
#define PINLANE_STREAM_BLOCKING 1

/**
 * A buffer in page-locked memory, from a pool, or of the caller's own memory. Any thread may use
 * it, one at a time: a call that conflicts with another thread's at the same moment gets
 * `PINLANE_STATUS_BUSY`.
 */
typedef struct pinlane_buffer pinlane_buffer;

/**
 * A device: a GPU, or an emulated one. Any thread may use it; freeing it does not end what was
 * made from it.
 */
typedef struct pinlane_device pinlane_device;

/**
 * A buffer in the memory of a device. Any thread may use it, one at a time: a call that conflicts
 * with another thread's at the same moment gets `PINLANE_STATUS_BUSY`.
 */
typedef struct pinlane_device_buffer pinlane_device_buffer;

/**
 * A file that is open for reading. Any thread may use it, also several at once.
 */
typedef struct pinlane_file pinlane_file;

/**
 * The caller's own work that is being enqueued; ended by `pinlane_foreign_end`.
 */
typedef struct pinlane_foreign pinlane_foreign;

/**
 * A pool of page-locked host memory. Any thread may use it; freeing the handle does not end its
 * buffers.
 */
typedef struct pinlane_pool pinlane_pool;

/**
 * A queue of device work, executed in order. Any thread may use it.
 */
typedef struct pinlane_stream pinlane_stream;

/**
 * Knows when one asynchronous operation is complete. Any thread may use it; freeing it changes
 * nothing about the operation.
 */
typedef struct pinlane_ticket pinlane_ticket;

/**
 * What a function returns: `PINLANE_STATUS_OK`, or why it failed. Values are never renumbered; new
 * ones may be added.
 */
typedef int32_t pinlane_status;

/**
 * One copy of a batch, between host and device. Set all members that you do not use to 0.
 *
 * The host's side is ordinary memory, named by its address, or a part of a page-locked `buffer`.
 * The device's side is the caller's own device memory, named by its address, or a part of a
 * `device_buffer`. The address of a side that is named by its buffer must be NULL.
 */
typedef struct {
  /**
   * The source: host memory in an upload, device memory in a download.
   */
  const void *src;
  /**
   * The destination: device memory in an upload, host memory in a download.
   */
  void *dst;
  /**
   * How much is copied. If it is 0, both addresses may be NULL.
   */
  size_t bytes;
  /**
   * The buffer in page-locked memory that is the host's side, or NULL.
   */
  pinlane_buffer *buffer;
  /**
   * Where in `buffer` the copy begins.
   */
  size_t buffer_offset;
  /**
   * The buffer in device memory that is the device's side, or NULL.
   */
  pinlane_device_buffer *device_buffer;
  /**
   * Where in `device_buffer` the copy begins.
   */
  size_t device_offset;
} pinlane_copy;

/**
 * Options of a batch. Initialise with `PINLANE_BATCH_OPTIONS_INIT`.
 */
typedef struct {
  /**
   * `sizeof(pinlane_batch_options)`.
   */
  size_t size;
  /**
   * `PINLANE_PATH_NONE`, so that the fastest way is taken, or one of `PINLANE_PATH_*`.
   */
  int32_t path;
  /**
   * Must be 0.
   */
  uint32_t flags;
} pinlane_batch_options;

/**
 * Told of a copy that has landed: `user` as it was given, the number of the copy, and its `bytes`
 * bytes at `data`, which may be read until the function returns. It returns 0 to be told of the
 * next, too.
 *
 * It is called on the thread that made the call, must not unwind (by a C++ exception or
 * otherwise), and must not call pinlane.
 */
typedef int32_t (*pinlane_landed)(void *user, size_t number, const void *data, size_t bytes);

/**
 * One copy of a batch, between device memory and device memory. Set all members that you do not
 * use to 0.
 *
 * A side is the caller's own memory of the stream's device, named by its address, or a part of a
 * buffer; its address must then be NULL.
 */
typedef struct {
  /**
   * The address of the source, or NULL.
   */
  const void *src;
  /**
   * The address of the destination, or NULL.
   */
  void *dst;
  /**
   * How much is copied. If it is 0, both addresses may be NULL.
   */
  size_t bytes;
  /**
   * The buffer that is the source, or NULL.
   */
  pinlane_device_buffer *src_buffer;
  /**
   * Where in `src_buffer` the copy begins.
   */
  size_t src_offset;
  /**
   * The buffer that is the destination, or NULL. It is the source of no copy of the batch.
   */
  pinlane_device_buffer *dst_buffer;
  /**
   * Where in `dst_buffer` the copy begins.
   */
  size_t dst_offset;
} pinlane_device_copy;

/**
 * Options of an emulated machine. Initialise with `PINLANE_EMULATOR_OPTIONS_INIT`.
 */
typedef struct {
  /**
   * `sizeof(pinlane_emulator_options)`.
   */
  size_t size;
  /**
   * Decides all that CUDA leaves open; the same seed gives the same run.
   */
  uint64_t seed;
  /**
   * Memory of each device, in bytes.
   */
  size_t memory_bytes;
  /**
   * `PINLANE_EXECUTION_EAGER` or `PINLANE_EXECUTION_LAZY`.
   */
  int32_t execution;
  /**
   * Must be 0.
   */
  uint32_t flags;
} pinlane_emulator_options;

/**
 * One range of a file, and where it goes. Set all members that you do not use to 0.
 */
typedef struct {
  /**
   * Where in the file the range begins.
   */
  uint64_t offset;
  /**
   * How long it is.
   */
  size_t bytes;
  /**
   * The caller's own device memory; NULL if it goes to `device_buffer`, or if there are no
   * bytes.
   */
  void *dst;
  /**
   * The buffer in device memory that it goes to, or NULL.
   */
  pinlane_device_buffer *device_buffer;
  /**
   * Where in `device_buffer` it goes.
   */
  size_t device_offset;
} pinlane_file_range;

/**
 * A buffer that the caller's own work uses. Set all members that you do not use to 0.
 */
typedef struct {
  /**
   * The buffer in page-locked memory, or NULL.
   */
  pinlane_buffer *buffer;
  /**
   * The buffer in device memory, or NULL; one of the two is set.
   */
  pinlane_device_buffer *device_buffer;
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
 * The way that some copies of a batch take.
 */
typedef struct {
  /**
   * One of `PINLANE_PATH_*`; `PINLANE_PATH_NONE` if there are no such copies.
   */
  int32_t path;
  /**
   * 0.
   */
  uint32_t reserved;
  /**
   * How long they should take, from the call until the data is there, in nanoseconds.
   */
  uint64_t predicted_ns;
  /**
   * How many copies there are that are not empty.
   */
  size_t copies;
  /**
   * How many they are when those that follow each other are merged.
   */
  size_t runs;
  /**
   * How many bytes they have.
   */
  size_t bytes;
} pinlane_choice;

/**
 * How a batch would be made. Initialise with `PINLANE_PLAN_INIT`. Copies of ordinary memory take
 * one way, those of page-locked memory another.
 */
typedef struct {
  /**
   * `sizeof(pinlane_plan)`.
   */
  size_t size;
  /**
   * For the copies of ordinary memory.
   */
  pinlane_choice ordinary;
  /**
   * For those of page-locked memory.
   */
  pinlane_choice direct;
} pinlane_plan;

/**
 * Options of a pool. Initialise with `PINLANE_POOL_OPTIONS_INIT`; a member that is 0 stands for
 * its default.
 */
typedef struct {
  /**
   * `sizeof(pinlane_pool_options)`.
   */
  size_t size;
  /**
   * The most that the pool may page-lock at a time, in bytes, a page of 4096 at least. By
   * default half of the memory that the machine or the process's control groups allow, whichever
   * is less.
   */
  size_t max_bytes;
  /**
   * The most that one thread keeps for itself, in bytes of free blocks; never more than a 32nd
   * of the budget. By default 8 MiB.
   */
  size_t thread_cache_bytes;
  /**
   * What is left when memory is given back because of `high_watermark_bytes`; not above it.
   */
  size_t low_watermark_bytes;
  /**
   * Memory is given back by itself when more bytes than this are free and shared by all threads.
   * By default it is not.
   */
  size_t high_watermark_bytes;
  /**
   * Memory is given back by itself once it has been free for that long, in microseconds. By
   * default it is not.
   */
  uint64_t idle_age_us;
  /**
   * `PINLANE_PAGE_LOCKING_REGISTER` or `PINLANE_PAGE_LOCKING_ALLOCATE`.
   */
  int32_t page_locking;
  /**
   * How many threads touch new memory, at most. By default one a core, 16 at most.
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
 * What a pool holds and has done; sizes are in bytes of blocks, times in nanoseconds. Initialise
 * with `PINLANE_POOL_STATS_INIT`.
 */
typedef struct {
  /**
   * `sizeof(pinlane_pool_stats)`.
   */
  size_t size;
  /**
   * The budget.
   */
  size_t max_bytes;
  /**
   * Page-locked now: live, cached, in flight and quarantined blocks, what is left over at the
   * end of slabs, and memory that is being page-locked or given back at the moment.
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
   * Free, and ready to be used again.
   */
  size_t cached_bytes;
  /**
   * The part of `cached_bytes` that threads keep for themselves.
   */
  size_t thread_bytes;
  /**
   * Freed, but perhaps still used by a device.
   */
  size_t in_flight_bytes;
  /**
   * Lost: it could not be proven that the device is done with them, or the system did not take
   * them back.
   */
  size_t quarantined_bytes;
  /**
   * Allocations served from free blocks.
   */
  uint64_t hits;
  /**
   * The part of `hits` that needed nothing but the thread's own blocks.
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
   * How long that took, all together.
   */
  uint64_t growths_total_ns;
  /**
   * How long the longest took.
   */
  uint64_t growths_longest_ns;
  /**
   * Allocations that waited, because the budget did not allow new memory.
   */
  uint64_t waits;
  /**
   * How long they waited, all together.
   */
  uint64_t waits_total_ns;
  /**
   * How long the longest waited.
   */
  uint64_t waits_longest_ns;
  /**
   * Times that memory was given back to the system.
   */
  uint64_t trims;
  /**
   * Growths for which registering failed, so that the runtime allocated the memory.
   */
  uint64_t growths_not_registered;
  /**
   * Growths for which the system refused huge pages.
   */
  uint64_t growths_small_pages;
  /**
   * Growths whose memory could not be bound to the device's NUMA node.
   */
  uint64_t growths_other_node;
  /**
   * Threads that keep blocks.
   */
  size_t threads;
  /**
   * Requests in the queue.
   */
  size_t waiting;
} pinlane_pool_stats;

/**
 * What a pool holds of one size of block; counts are in blocks.
 */
typedef struct {
  /**
   * The size of a block.
   */
  size_t block_bytes;
  /**
   * How many there are: live, cached, in flight and quarantined.
   */
  size_t blocks;
  /**
   * In buffers that exist, and allocated by address.
   */
  size_t live;
  /**
   * Free, and ready to be used again.
   */
  size_t cached;
  /**
   * Freed, but perhaps still used by a device.
   */
  size_t in_flight;
  /**
   * Lost: it could not be proven that the device is done with them.
   */
  size_t quarantined;
  /**
   * How often memory was page-locked for this size.
   */
  uint64_t growths;
} pinlane_class_stats;

/**
 * The page-locked memory through which copies of ordinary memory go. Initialise with
 * `PINLANE_STAGING_OPTIONS_INIT`; a member that is 0 stands for its default.
 */
typedef struct {
  /**
   * `sizeof(pinlane_staging_options)`.
   */
  size_t size;
  /**
   * The most page-locked memory for large copies, in bytes; small ones take up to half as much
   * beside. By default 32 MiB, page-locked as it is needed.
   */
  size_t ring_bytes;
  /**
   * The largest portion that is given to the copy engine at once, in bytes: what a slot holds.
   * By default 4 MiB.
   */
  size_t slot_bytes;
  /**
   * The first portion of a short upload, in bytes; a longer upload begins with a thirty-second
   * part. Portions grow to an eighth of the copy, but a slot at most. By default 256 KiB.
   */
  size_t first_bytes;
  /**
   * The bytes that a thread copies at a time. By default 256 KiB.
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
 * The threads that help callers to copy ordinary memory. Initialise with
 * `PINLANE_COPY_TEAM_OPTIONS_INIT`; a member that is 0 stands for its default.
 */
typedef struct {
  /**
   * `sizeof(pinlane_copy_team_options)`.
   */
  size_t size;
  /**
   * The cores that the threads are pinned to, in turns, or NULL: the system chooses.
   */
  const uint32_t *cores;
  /**
   * How many `cores` there are.
   */
  size_t core_count;
  /**
   * How long a thread without work spins before it sleeps, in microseconds. By default 200, at
   * most 1000000.
   */
  uint64_t spin_us;
  /**
   * How many threads there are to help callers, at most 256. By default one less than there are
   * cores, 15 at most.
   */
  uint32_t threads;
  /**
   * How many of them copy memory; the others only read files. By default 7.
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
typedef struct {
  /**
   * `sizeof(pinlane_stream_options)`.
   */
  size_t size;
  /**
   * Lower numbers run first; 0 is the default. Clamped to the device's range.
   */
  int32_t priority;
  /**
   * 0 or `PINLANE_STREAM_BLOCKING`.
   */
  uint32_t flags;
} pinlane_stream_options;

/**
 * The call did what it promises.
 */
#define PINLANE_STATUS_OK 0

/**
 * An argument is outside what the function accepts.
 */
#define PINLANE_STATUS_INVALID_VALUE 1

/**
 * Two sides of a copy, or a pattern and its range, do not fit each other.
 */
#define PINLANE_STATUS_LENGTH_MISMATCH 2

/**
 * A range does not lie inside its buffer.
 */
#define PINLANE_STATUS_OUT_OF_RANGE 3

/**
 * The device still uses the buffer, or no block is free: only `try_` functions say so.
 */
#define PINLANE_STATUS_NOT_READY 4

/**
 * The pool's budget is spent on buffers that are alive.
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
 * The per-thread default stream was used on another thread than the one that opened it.
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
 * Another thread uses the buffer in a conflicting way at this moment.
 */
#define PINLANE_STATUS_BUSY 15

/**
 * A handle is NULL, stale, freed, or of another type.
 */
#define PINLANE_STATUS_INVALID_HANDLE 16

/**
 * A panic was caught: a bug in pinlane.
 */
#define PINLANE_STATUS_PANIC 17

/**
 * Another failure that the CUDA runtime reported; see `pinlane_last_cuda_error`.
 */
#define PINLANE_STATUS_CUDA 18

/**
 * What was waited for did not happen in time.
 */
#define PINLANE_STATUS_TIMED_OUT 19

/**
 * A file could not be opened or read, or ended early.
 */
#define PINLANE_STATUS_IO 20

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes all `count` copies of `copies`, from host memory, ordinary or page-locked, to the stream's
 * device. Returns when ordinary memory may be reused; the ticket says when all has arrived.
 * Ordered on `stream`, and after conflicting uses of the buffers on other streams; the copies are
 * unordered among themselves, so that their destinations must not overlap. `options` may be NULL:
 * the way that should be fastest; `copies` may be NULL if `count` is 0; `ticket` may be NULL.
 *
 * With page-locked sources only, the call does not block; with ordinary ones it does, as
 * `pinlane_upload_slice`.
 *
 * Statuses: `INVALID_HANDLE`, `OUT_OF_RANGE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`,
 * `FORKED_PROCESS`, `WRONG_THREAD`, `OUT_OF_HOST_MEMORY`; `INVALID_VALUE` if destinations overlap,
 * a pointer is NULL, or a side is named twice, or for options of an unknown size, path or flag;
 * `UNSUPPORTED` if that path is not possible for these copies: nothing was enqueued. `CUDA`,
 * `DEVICE_LOST`: the contents of all destinations are unspecified.
 *
 * # Safety
 *
 * - `copies` is NULL or points to an array of `count` elements.
 * - Host memory that is named by its address is readable, and nobody writes it until the call
 *   returns.
 * - Device memory that is named by its address is memory of the stream's device, and stays
 *   allocated until the copies are complete.
 * - `options` is NULL or points to an initialised struct whose `size` member is right.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_upload_batch(const pinlane_stream *stream,
                                    const pinlane_copy *copies,
                                    size_t count,
                                    const pinlane_batch_options *options,
                                    pinlane_ticket **ticket);

/**
 * Makes all `count` copies of `copies`, from the stream's device to host memory, ordinary or
 * page-locked. Returns when all that goes to ordinary memory has arrived; the ticket says when the
 * rest has, and `pinlane_buffer_read` waits for it. Does not block if there are page-locked
 * destinations only. Ordered as `pinlane_upload_batch`; destinations must not overlap. `options`
 * and `ticket` may be NULL; `copies` may be NULL if `count` is 0.
 *
 * Statuses: as for `pinlane_upload_batch`.
 *
 * # Safety
 *
 * - `copies` is NULL or points to an array of `count` elements.
 * - Host memory that is named by its address is writable, and nobody else accesses it until the
 *   call returns.
 * - Device memory that is named by its address is memory of the stream's device, and stays
 *   allocated until the copies are complete.
 * - `options` is NULL or points to an initialised struct whose `size` member is right.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_download_batch(const pinlane_stream *stream,
                                      const pinlane_copy *copies,
                                      size_t count,
                                      const pinlane_batch_options *options,
                                      pinlane_ticket **ticket);

/**
 * As `pinlane_download_batch`, and calls `landed` for every copy as it lands, while others are
 * still on their way. Blocks until all have landed, also when `landed` has asked to be told no
 * more.
 *
 * Copies to one kind of memory land in their order; those to page-locked memory come first.
 *
 * Statuses: as for `pinlane_upload_batch`; `INVALID_VALUE` if `landed` is NULL. Copies that
 * `landed` was called for have landed all the same.
 *
 * # Safety
 *
 * - `copies` is NULL or points to an array of `count` elements.
 * - Host memory that is named by its address is writable, and nobody else accesses it until the
 *   call returns, but `landed` as it is told.
 * - Device memory that is named by its address is memory of the stream's device.
 * - `landed` may be called with `user`, and does not unwind.
 */
pinlane_status pinlane_download_batch_each(const pinlane_stream *stream,
                                           const pinlane_copy *copies,
                                           size_t count,
                                           pinlane_landed landed,
                                           void *user);

/**
 * Makes all `count` copies of `copies`, between device memory and device memory: of one device,
 * or, between buffers, of two, one of which `stream` belongs to. Does not block. Ordered as
 * `pinlane_upload_batch`; no destination may overlap another one or a source. `ticket` may be
 * NULL; `copies` may be NULL if `count` is 0.
 *
 * Statuses: as for `pinlane_upload_batch`.
 *
 * # Safety
 *
 * - `copies` is NULL or points to an array of `count` elements.
 * - Memory that is named by its address is memory of the stream's device, and stays allocated
 *   until the copies are complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_copy_batch(const pinlane_stream *stream,
                                  const pinlane_device_copy *copies,
                                  size_t count,
                                  pinlane_ticket **ticket);

/**
 * Allocates `bytes` of page-locked memory, aligned to 256 at least, and writes the buffer to
 * `buffer`, which the caller frees with `pinlane_buffer_free`. The contents are unspecified.
 * Blocks while it page-locks new memory, and, when the budget is spent, until the device is done
 * with a freed buffer.
 *
 * Statuses: `INVALID_HANDLE`, `BUDGET_EXHAUSTED`, `OUT_OF_HOST_MEMORY`, `FORKED_PROCESS`;
 * `INVALID_VALUE` if `buffer` is NULL or the size overflows.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_alloc(const pinlane_pool *pool,
                                    size_t bytes,
                                    pinlane_buffer **buffer);

/**
 * As `pinlane_buffer_alloc`, with all bytes zero.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_alloc_zeroed(const pinlane_pool *pool,
                                           size_t bytes,
                                           pinlane_buffer **buffer);

/**
 * As `pinlane_buffer_alloc`, with the first byte at a multiple of `alignment`: a power of two, at
 * most 2 MiB. Status `INVALID_VALUE` for another.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_alloc_aligned(const pinlane_pool *pool,
                                            size_t bytes,
                                            size_t alignment,
                                            pinlane_buffer **buffer);

/**
 * As `pinlane_buffer_alloc`, but waits for whatever may make room, buffers that others free
 * included, for at most `microseconds`, and does not block longer. Requests are served in the
 * order in which they came. Status `TIMED_OUT`; `BUDGET_EXHAUSTED` only if the request is larger
 * than the budget.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_alloc_timeout(const pinlane_pool *pool,
                                            size_t bytes,
                                            uint64_t microseconds,
                                            pinlane_buffer **buffer);

/**
 * As `pinlane_buffer_alloc`, but only from memory that is page-locked already: does not grow and
 * does not wait. Status `NOT_READY` if there is none of that size.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_try_alloc(const pinlane_pool *pool,
                                        size_t bytes,
                                        pinlane_buffer **buffer);

/**
 * Writes the address of the bytes to `data`, to be read. Blocks until every pending device write
 * to the buffer is complete. The bytes may be read until the next call that lets the device write
 * the buffer, or that frees it.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `FORKED_PROCESS`, or the error of a copy that failed;
 * `INVALID_VALUE` if `data` is NULL.
 *
 * # Safety
 *
 * - `data` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_read(const pinlane_buffer *buffer,
                                   const void **data);

/**
 * Writes the address of the bytes to `data`, to be written. Blocks until every pending device use
 * of the buffer is complete. The bytes may be written until the next call that lets the device use
 * the buffer, or that frees it.
 *
 * Statuses: as for `pinlane_buffer_read`.
 *
 * # Safety
 *
 * - `data` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_write(pinlane_buffer *buffer,
                                    void **data);

/**
 * As `pinlane_buffer_read`, but does not block: status `NOT_READY` where that would wait.
 *
 * # Safety
 *
 * - `data` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_try_read(const pinlane_buffer *buffer, const void **data);

/**
 * As `pinlane_buffer_write`, but does not block: status `NOT_READY` where that would wait.
 *
 * # Safety
 *
 * - `data` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_try_write(pinlane_buffer *buffer, void **data);

/**
 * Writes the address of the bytes to `data` without waiting, whoever uses the buffer, for the
 * caller's own CUDA calls. Tell the buffer of them with `pinlane_foreign_begin` or
 * `pinlane_buffer_record_use`; do not access the bytes on the host through this address.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `data` is NULL.
 *
 * # Safety
 *
 * - `data` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_address(const pinlane_buffer *buffer, void **data);

/**
 * Writes the buffer's size in bytes to `bytes`, whoever uses the buffer.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `bytes` is NULL.
 *
 * # Safety
 *
 * - `bytes` is NULL or points to a variable.
 */
pinlane_status pinlane_buffer_size(const pinlane_buffer *buffer, size_t *bytes);

/**
 * Makes later work of `stream` wait, on the device, for every pending use of the buffer, so that
 * the caller's own work on it may be enqueued there. Does not block.
 *
 * Statuses: as for `pinlane_buffer_record_use`.
 */
pinlane_status pinlane_buffer_acquire(pinlane_buffer *buffer,
                                      const pinlane_stream *stream);

/**
 * Tells the buffer that the caller's own CUDA calls on `stream` use it, for reading or writing:
 * whatever is on the stream now counts as a use, and everything later waits for it. Call it after
 * enqueuing that work, which `pinlane_buffer_acquire` ordered. For a `cudaStream_t`, borrow it
 * once with `pinlane_stream_borrow`. Does not block.
 *
 * With `BUSY` the use is not recorded: call again. Where several threads use a buffer, call
 * `pinlane_foreign_begin` instead, which keeps it from before the work is enqueued.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
 * `WRONG_THREAD`, `CUDA`.
 */
pinlane_status pinlane_buffer_record_use(pinlane_buffer *buffer,
                                         const pinlane_stream *stream);

/**
 * Frees the buffer; NULL is a no-op. Returns at once, even in the middle of a copy: the memory is
 * used again only when the device is done with it. Only a buffer of the caller's own memory, from
 * `pinlane_buffer_register`, is waited for: when it is freed, the memory is the caller's again.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a buffer. For memory of the
 * caller's own also `BUSY` while another thread's call uses it, `UNSUPPORTED` inside a host
 * function (also one that `cudaLaunchHostFunc` runs), and what the CUDA runtime reports when it is
 * to wait for the device or to unregister the memory. The buffer is then as it was: the memory is
 * still lent and page-locked, and the call may be made again. After `DEVICE_LOST` copies that were
 * enqueued before may still run: keep the memory until the process ends.
 */
pinlane_status pinlane_buffer_free(pinlane_buffer *buffer);

/**
 * Opens GPU number `ordinal`, counted from 0, and writes it to `device`, which the caller frees
 * with `pinlane_device_free`. Blocks while CUDA initialises, which can take a second.
 *
 * Statuses: `NO_DEVICE` (the message says what is missing), `FORKED_PROCESS`, `INVALID_VALUE` if
 * `device` is NULL.
 *
 * # Safety
 *
 * - `device` is NULL or points to a variable.
 */
pinlane_status pinlane_device_open(int32_t ordinal,
                                   pinlane_device **device);

/**
 * Opens GPU 0 where there is one and an emulated device where there is none, and writes it to
 * `device`, which the caller frees with `pinlane_device_free`. `pinlane_device_name` tells which
 * it is.
 *
 * Statuses: as for `pinlane_device_open`; `NO_DEVICE` only in a build without the emulated device.
 *
 * # Safety
 *
 * - `device` is NULL or points to a variable.
 */
pinlane_status pinlane_device_open_or_emulated(pinlane_device **device);

/**
 * Makes an emulated machine with `count` devices, 1 to 64, and writes them to `devices[0 ..
 * count]`; the caller frees each with `pinlane_device_free`. `options` may be NULL.
 *
 * Statuses: `INVALID_VALUE` for NULL or misaligned `devices`, a `count` out of range, or options
 * of an unknown size, execution or flag; `UNSUPPORTED` in a build without the emulated device.
 *
 * # Safety
 *
 * - `options` is NULL or points to an initialised struct whose `size` member is right.
 * - `devices` is NULL or points to an array of `count` elements.
 */
pinlane_status pinlane_emulator_create(const pinlane_emulator_options *options,
                                       pinlane_device **devices,
                                       int32_t count);

/**
 * Writes how many GPUs there are to `count`: 0 where there is no driver, or no CUDA in this build.
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
 * the terminating NUL, cut off if it does not fit.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `buffer` is NULL or `capacity` is 0.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to `capacity` bytes.
 */
pinlane_status pinlane_device_name(const pinlane_device *device, char *buffer, size_t capacity);

/**
 * Writes the device's number to `ordinal`.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `ordinal` is NULL.
 *
 * # Safety
 *
 * - `ordinal` is NULL or points to a variable.
 */
pinlane_status pinlane_device_ordinal(const pinlane_device *device, int32_t *ordinal);

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
pinlane_status pinlane_device_memory_info(const pinlane_device *device,
                                          size_t *free_bytes,
                                          size_t *total_bytes);

/**
 * Writes how many streams of the device exist that pinlane created to `count`: those with handles,
 * those that work of a live buffer was enqueued on and that it may still wait for, and a few of
 * pinlane's own.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `count` is NULL.
 *
 * # Safety
 *
 * - `count` is NULL or points to a variable.
 */
pinlane_status pinlane_device_live_streams(const pinlane_device *device,
                                           size_t *count);

/**
 * Frees the handle; NULL is a no-op. Streams, pools and buffers of the device stay valid.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a device.
 */
pinlane_status pinlane_device_free(pinlane_device *device);

/**
 * Allocates `bytes` of device memory, aligned to 256, and writes the buffer to `buffer`, which the
 * caller frees with `pinlane_device_buffer_free`. The contents are unspecified. Does not wait for
 * the device.
 *
 * Statuses: `INVALID_HANDLE`, `OUT_OF_DEVICE_MEMORY`, `FORKED_PROCESS`; `INVALID_VALUE` if
 * `buffer` is NULL.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_alloc(const pinlane_device *device,
                                           size_t bytes,
                                           pinlane_device_buffer **buffer);

/**
 * Writes the device address of the buffer to `pointer`, whoever uses the buffer, for the caller's
 * own kernels. Order them behind the allocation and other uses, and tell the buffer of them, with
 * `pinlane_foreign_begin`, or with `pinlane_device_buffer_acquire` and
 * `pinlane_device_buffer_record_use`. NULL for a buffer of 0 bytes.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `pointer` is NULL.
 *
 * # Safety
 *
 * - `pointer` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_address(const pinlane_device_buffer *buffer,
                                             void **pointer);

/**
 * Writes the buffer's size in bytes to `bytes`, whoever uses the buffer.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `bytes` is NULL.
 *
 * # Safety
 *
 * - `bytes` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_size(const pinlane_device_buffer *buffer, size_t *bytes);

/**
 * Makes later work of `stream` wait, on the device, for every pending use of the buffer, so that
 * the caller's own work on it may be enqueued there. Does not block.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
 * `WRONG_THREAD`, `CUDA`.
 */
pinlane_status pinlane_device_buffer_acquire(pinlane_device_buffer *buffer,
                                             const pinlane_stream *stream);

/**
 * Tells the buffer that the caller's own work on `stream` uses it, for reading or writing:
 * whatever is on the stream now counts as a use, and everything later waits for it. Call it after
 * enqueuing that work. Does not block. With `BUSY` the use is not recorded, as in
 * `pinlane_buffer_record_use`.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
 * `WRONG_THREAD`, `CUDA`.
 */
pinlane_status pinlane_device_buffer_record_use(pinlane_device_buffer *buffer,
                                                const pinlane_stream *stream);

/**
 * Frees the buffer; NULL is a no-op. Returns at once, even in the middle of a copy: the memory is
 * freed in stream order, behind its last use.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a device buffer.
 */
pinlane_status pinlane_device_buffer_free(pinlane_device_buffer *buffer);

/**
 * Opens the regular file at `path`, which ends with a NUL, and writes it to `file`, which the
 * caller frees with `pinlane_file_free`. `flags` is 0 or `PINLANE_FILE_DIRECT`. Blocks as opening
 * a file does.
 *
 * A file that is written meanwhile may give old or new bytes, a range that is cut off a status,
 * and neither anything worse.
 *
 * Statuses: `IO` if the file cannot be opened or is none; `UNSUPPORTED` where the file system has
 * no `O_DIRECT`; `FORKED_PROCESS`; `INVALID_VALUE` if `path` or `file` is NULL, or for unknown
 * flags.
 *
 * # Safety
 *
 * - `path` is NULL or points to a string that ends with a NUL.
 * - `file` is NULL or points to a variable.
 */
pinlane_status pinlane_file_open(const char *path,
                                 uint32_t flags,
                                 pinlane_file **file);

/**
 * Writes how long the file is at present, in bytes, to `bytes`.
 *
 * Statuses: `INVALID_HANDLE`, `IO`; `INVALID_VALUE` if `bytes` is NULL.
 *
 * # Safety
 *
 * - `bytes` is NULL or points to a variable.
 */
pinlane_status pinlane_file_size(const pinlane_file *file, uint64_t *bytes);

/**
 * Fills `bytes` of `buffer`, from `buffer_offset` on, with those of the file from `offset` on.
 * Blocks until the device has no use of them pending, and until all is read, by several threads.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY`, `FORKED_PROCESS`, `OUT_OF_RANGE` for a range that the file
 * or the buffer does not have: nothing was read. `IO` if the file ends early or cannot be read:
 * the contents of the buffer are unspecified.
 */
pinlane_status pinlane_file_read(const pinlane_file *file,
                                 uint64_t offset,
                                 pinlane_buffer *buffer,
                                 size_t buffer_offset,
                                 size_t bytes);

/**
 * Frees the handle and closes the file; NULL is a no-op.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a file.
 */
pinlane_status pinlane_file_free(pinlane_file *file);

/**
 * Copies `bytes` of the file, from `offset` on, to the caller's own device memory. Blocks until
 * they have been read; the ticket says when they have arrived. Ordered as `pinlane_upload_slice`.
 * `device_pointer` may be NULL if `bytes` is 0; `ticket` may be NULL.
 *
 * Statuses: as for `pinlane_upload_slice`; `OUT_OF_RANGE` for a range that the file does not have:
 * nothing was enqueued. `IO` if the file ends early or cannot be read: the contents of the
 * destination are unspecified.
 *
 * # Safety
 *
 * - `device_pointer` is device memory of the stream's device, of `bytes` at least, and stays
 *   allocated until the copy is complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_upload_file(const pinlane_stream *stream,
                                   const pinlane_file *file,
                                   uint64_t offset,
                                   void *device_pointer,
                                   size_t bytes,
                                   pinlane_ticket **ticket);

/**
 * As `pinlane_upload_file`, to `destination` from `destination_offset` on; also ordered after
 * conflicting uses of the buffer on other streams.
 *
 * Statuses: as for `pinlane_upload_file`; `BUSY`, `WRONG_DEVICE`.
 *
 * # Safety
 *
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_upload_file(const pinlane_stream *stream,
                                                 const pinlane_file *file,
                                                 uint64_t offset,
                                                 pinlane_device_buffer *destination,
                                                 size_t destination_offset,
                                                 size_t bytes,
                                                 pinlane_ticket **ticket);

/**
 * Copies `count` ranges of the file to device memory. They are one job: the device need not wait
 * between them. Best in the order of the file; destinations must not overlap. Blocks and is
 * ordered as `pinlane_upload_file`; the ticket is for all of them. `ranges` may be NULL if `count`
 * is 0; `ticket` may be NULL.
 *
 * Statuses: as for `pinlane_device_buffer_upload_file`; `INVALID_VALUE` if destinations overlap, a
 * pointer is NULL, or a destination is named twice.
 *
 * # Safety
 *
 * - `ranges` is NULL or points to an array of `count` elements.
 * - Device memory that is named by its address is memory of the stream's device, and stays
 *   allocated until the copies are complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_upload_file_ranges(const pinlane_stream *stream,
                                          const pinlane_file *file,
                                          const pinlane_file_range *ranges,
                                          size_t count,
                                          pinlane_ticket **ticket);

/**
 * Begins to enqueue the caller's own work (a kernel, cuBLAS, NCCL, ...), which uses the `count`
 * buffers of `uses`, on `stream`: makes the stream wait for every pending use that conflicts, and
 * writes what ends it to `foreign`. Enqueue on the stream's `cudaStream_t`, or order into it, all
 * of that work, and call `pinlane_foreign_end`. Does not block. `uses` may be NULL if `count` is
 * 0.
 *
 * The buffers are borrowed meanwhile: other calls that conflict get `BUSY`, on this thread too; a
 * buffer that is freed meanwhile is freed at the end. So a use is never lost. What is not ended
 * keeps them borrowed.
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
pinlane_status pinlane_foreign_begin(const pinlane_stream *stream,
                                     const pinlane_use *uses,
                                     size_t count,
                                     pinlane_foreign **foreign);

/**
 * Ends what `pinlane_foreign_begin` began: what is on the stream now counts as a use of the
 * buffers, and everything later waits for it. Frees the handle; NULL is a no-op. Any thread may
 * call it. Does not block, unless the uses cannot be recorded: then it waits for the stream, and
 * if that fails too, the buffers stay borrowed for ever. `ticket`, for the work, may be NULL.
 *
 * Statuses: `INVALID_HANDLE`, `BUSY` if two threads end it at once, `FORKED_PROCESS`;
 * `INVALID_VALUE` if `ticket` is misaligned: it has not ended. `STREAM_CAPTURING`, `WRONG_THREAD`,
 * `CUDA`, `DEVICE_LOST`: it has.
 *
 * # Safety
 *
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_foreign_end(pinlane_foreign *foreign,
                                   pinlane_ticket **ticket);

/**
 * Writes what `pinlane_upload_batch` would do with these copies to `plan`, whose `size` member
 * must be set, and the same in words, with the cost of every other way, to `text`: at most
 * `capacity` bytes with the terminating NUL, cut off if it does not fit. `length` gets the length
 * of the whole text, without the NUL. `text` may be NULL if `capacity` is 0, and `length` may be
 * NULL. Enqueues nothing, and does not block.
 *
 * Statuses: those of `pinlane_upload_batch` about its arguments; `INVALID_VALUE` if `plan` is NULL
 * or its size is unknown.
 *
 * # Safety
 *
 * - `copies` is NULL or points to an array of `count` elements, which name memory as in
 *   `pinlane_upload_batch`.
 * - `plan` is NULL or points to a struct whose `size` member is set and right.
 * - `text` is NULL or points to `capacity` bytes.
 * - `length` is NULL or points to a variable.
 */
pinlane_status pinlane_plan_upload(const pinlane_stream *stream,
                                   const pinlane_copy *copies,
                                   size_t count,
                                   pinlane_plan *plan,
                                   char *text,
                                   size_t capacity,
                                   size_t *length);

/**
 * As `pinlane_plan_upload`, for `pinlane_download_batch`.
 *
 * # Safety
 *
 * - `copies` is NULL or points to an array of `count` elements, which name memory as in
 *   `pinlane_download_batch`.
 * - `plan` is NULL or points to a struct whose `size` member is set and right.
 * - `text` is NULL or points to `capacity` bytes.
 * - `length` is NULL or points to a variable.
 */
pinlane_status pinlane_plan_download(const pinlane_stream *stream,
                                     const pinlane_copy *copies,
                                     size_t count,
                                     pinlane_plan *plan,
                                     char *text,
                                     size_t capacity,
                                     size_t *length);

/**
 * Makes a pool for `device` and writes it to `pool`, which the caller frees with
 * `pinlane_pool_free`. `options` may be NULL: the defaults. Page-locks nothing yet.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `INVALID_VALUE` if `pool` is NULL, for a budget of
 * less than a page, for watermarks of which the low one is the higher, or for options of an
 * unknown size, page-locking or flag.
 *
 * # Safety
 *
 * - `options` is NULL or points to an initialised struct whose `size` member is right.
 * - `pool` is NULL or points to a variable.
 */
pinlane_status pinlane_pool_create(const pinlane_device *device,
                                   const pinlane_pool_options *options,
                                   pinlane_pool **pool);

/**
 * Writes another handle of the same pool to `clone`, which the caller frees with
 * `pinlane_pool_free`: for a part of a program that keeps the pool for itself. Does not block.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `clone` is NULL.
 *
 * # Safety
 *
 * - `clone` is NULL or points to a variable.
 */
pinlane_status pinlane_pool_clone(const pinlane_pool *pool, pinlane_pool **clone);

/**
 * Writes to `same` whether two handles are of one pool: 1 or 0.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `same` is NULL.
 *
 * # Safety
 *
 * - `same` is NULL or points to a variable.
 */
pinlane_status pinlane_pool_is_same(const pinlane_pool *pool,
                                    const pinlane_pool *other,
                                    int32_t *same);

/**
 * Gives free memory back to the system until `keep_bytes` of it are left, and writes how many
 * bytes it was to `released_bytes`, which may be NULL. What was used last is kept; what other
 * threads keep goes too. Only memory all of whose blocks are free can be given back. Blocks while
 * the runtime releases it, which may wait for devices.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `UNSUPPORTED` inside a host function;
 * `INVALID_VALUE` if `released_bytes` is misaligned.
 *
 * # Safety
 *
 * - `released_bytes` is NULL or points to a variable.
 */
pinlane_status pinlane_pool_trim(const pinlane_pool *pool,
                                 size_t keep_bytes,
                                 size_t *released_bytes);

/**
 * Frees the handle; NULL is a no-op. The memory is given back once the last handle of the pool and
 * the last buffer are freed and the device is done with all of it; whoever frees last waits for
 * that. What `pinlane_pool_allocate` gave and nobody gave back stays allocated for ever: its user
 * may still be there.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a pool.
 */
pinlane_status pinlane_pool_free(pinlane_pool *pool);

/**
 * Allocates at least `bytes` of page-locked memory, at least 1, and writes its address to
 * `memory`: a multiple of `alignment`, which is a power of two, at most 2 MiB. The caller gives it
 * back with `pinlane_pool_deallocate`; it belongs to the pool, and stays allocated for ever once
 * the pool's last handle is freed. The contents are unspecified. Blocks as `pinlane_buffer_alloc`.
 *
 * This is memory for allocators, such as `std::pmr`, and for libraries that want an address. It is
 * plain memory: nothing waits for a device that still uses it. A `pinlane_buffer` does that by
 * itself. A forked child does not have the memory, and must not touch it.
 *
 * Statuses: `INVALID_HANDLE`, `BUDGET_EXHAUSTED`, `OUT_OF_HOST_MEMORY`, `FORKED_PROCESS`;
 * `INVALID_VALUE` if `memory` is NULL, the size overflows, or for another `alignment`.
 *
 * # Safety
 *
 * - `memory` is NULL or points to a variable.
 */
pinlane_status pinlane_pool_allocate(const pinlane_pool *pool,
                                     size_t bytes,
                                     size_t alignment,
                                     void **memory);

/**
 * Gives back memory that `pinlane_pool_allocate` gave, by any handle of the same pool; NULL is a
 * no-op. Does not block. The memory may be used again at once: the caller's own work on devices
 * must be done with it, or have been told with `pinlane_pool_record_use`, which may still be at it
 * on another thread. In a forked child it does nothing.
 *
 * Statuses: `INVALID_HANDLE` also for memory that this pool did not give, or that was given back
 * already; `INVALID_VALUE` for an address inside of what it gave. In both nothing is freed.
 *
 * # Safety
 *
 * - Nobody uses the memory any more.
 */
pinlane_status pinlane_pool_deallocate(const pinlane_pool *pool,
                                       void *memory);

/**
 * Tells the pool that the caller's own CUDA calls on `stream` use memory that
 * `pinlane_pool_allocate` gave: once it is given back, it is not used again before what is on the
 * stream now is done. `memory` is any address in it, and stands for all of it. Call it after
 * enqueuing that work. For a `cudaStream_t`, borrow it once with `pinlane_stream_borrow`. Does not
 * block.
 *
 * The host may access the memory all the while: when that is sound is the caller's to know.
 *
 * Statuses: `INVALID_HANDLE`, also for memory that is not allocated from this pool; `BUSY` while
 * another thread does the same; `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
 * `WRONG_THREAD`, `CUDA`.
 */
pinlane_status pinlane_pool_record_use(const pinlane_pool *pool,
                                       const void *memory,
                                       const pinlane_stream *stream);

/**
 * Writes what the pool holds and has done to `stats`, whose `size` member must be set. Takes a
 * short lock. While other threads allocate or free, the parts need not add up.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `stats` is NULL or its size is unknown.
 *
 * # Safety
 *
 * - `stats` is NULL or points to a struct whose `size` member is set and right.
 */
pinlane_status pinlane_pool_get_stats(const pinlane_pool *pool, pinlane_pool_stats *stats);

/**
 * Writes what the pool holds, by size of block and the smallest first, to `classes[0 ..
 * capacity]`, and how many sizes there are to `count`. If that is more than `capacity`, the rest
 * was left out: call it with `classes` NULL and a capacity of 0 for the number, and again with as
 * much room. Takes a short lock.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `count` is NULL, or `classes` is while `capacity`
 * is not 0.
 *
 * # Safety
 *
 * - `classes` is NULL or points to an array of `capacity` elements.
 * - `count` is NULL or points to a variable.
 */
pinlane_status pinlane_pool_get_class_stats(const pinlane_pool *pool,
                                            pinlane_class_stats *classes,
                                            size_t capacity,
                                            size_t *count);

/**
 * Page-locks `bytes` of the caller's own memory, from `memory` on, for all devices of the process
 * (`cudaHostRegister`), and writes a buffer of it to `buffer`: the same as a buffer from a pool,
 * for copies, access and the caller's own CUDA calls. Blocks: it takes about as long as allocating
 * page-locked memory of that size does. `memory` may have any alignment, and be NULL if `bytes` is
 * 0.
 *
 * The memory is lent until `pinlane_buffer_free` has returned `PINLANE_STATUS_OK`. That blocks
 * until the device is done with it and it is no longer page-locked; then it is the caller's to use
 * and to free.
 *
 * Statuses: `INVALID_HANDLE`, `OUT_OF_HOST_MEMORY`, `FORKED_PROCESS`, `UNSUPPORTED` inside a host
 * function; `INVALID_VALUE` if some of the memory is page-locked already, for memory that cannot
 * be (shared mappings of files), if `memory` or `buffer` is NULL, or if the size overflows.
 *
 * # Safety
 *
 * - `buffer` is NULL or points to a variable.
 * - `bytes` from `memory` on can be read and written until `pinlane_buffer_free` has returned
 *   `PINLANE_STATUS_OK`, and until then nobody accesses them but through the buffer.
 */
pinlane_status pinlane_buffer_register(const pinlane_device *device,
                                       void *memory,
                                       size_t bytes,
                                       pinlane_buffer **buffer);

/**
 * Copies `bytes` of ordinary memory, from `src` on, to the caller's own device memory. Returns
 * when `src` may be reused; the ticket says when the data has arrived. Ordered on `stream`; other
 * work on the device memory is ordered by the caller. `src` and `device_pointer` may be NULL if
 * `bytes` is 0; `ticket` may be NULL.
 *
 * Small copies, of 64 KiB unless `pinlane_device_set_staging` says otherwise, do not block. Larger
 * ones go through page-locked slots, filled by several threads while the device copies: the call
 * first waits until the stream has come to it, and takes until nearly all is on the device.
 *
 * Statuses: `INVALID_HANDLE`, `STREAM_CAPTURING`, `FORKED_PROCESS`, `WRONG_THREAD`,
 * `OUT_OF_HOST_MEMORY` if no memory can be page-locked; `INVALID_VALUE` if a pointer is NULL or
 * the size overflows: nothing was enqueued. `CUDA`, `DEVICE_LOST`: the contents of the destination
 * are unspecified.
 *
 * # Safety
 *
 * - `src` is NULL or points to `bytes` readable bytes, which nobody writes until the call returns.
 * - `device_pointer` is device memory of the stream's device, of `bytes` at least, and stays
 *   allocated until the copy is complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_upload_slice(const pinlane_stream *stream,
                                    const void *src,
                                    void *device_pointer,
                                    size_t bytes,
                                    pinlane_ticket **ticket);

/**
 * Copies `bytes` from the caller's own device memory to ordinary memory, from `dst` on, and
 * returns when they have arrived. Ordered on `stream`. Both pointers may be NULL if `bytes` is 0.
 *
 * Statuses: as for `pinlane_upload_slice`.
 *
 * # Safety
 *
 * - `device_pointer` is device memory of the stream's device, of `bytes` at least.
 * - `dst` is NULL or points to `bytes` writable bytes, which nobody else accesses until the call
 *   returns.
 */
pinlane_status pinlane_download_slice(const pinlane_stream *stream,
                                      const void *device_pointer,
                                      void *dst,
                                      size_t bytes);

/**
 * As `pinlane_upload_slice`, to `destination` from `destination_offset` on; also ordered after
 * conflicting uses of the buffer on other streams.
 *
 * Statuses: as for `pinlane_upload_slice`; `OUT_OF_RANGE`, `BUSY`, `WRONG_DEVICE`: nothing was
 * enqueued.
 *
 * # Safety
 *
 * - `src` is NULL or points to `bytes` readable bytes, which nobody writes until the call returns.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_upload_slice(const pinlane_stream *stream,
                                                  const void *src,
                                                  pinlane_device_buffer *destination,
                                                  size_t destination_offset,
                                                  size_t bytes,
                                                  pinlane_ticket **ticket);

/**
 * As `pinlane_download_slice`, from `source` from `source_offset` on; also ordered after
 * conflicting uses of the buffer on other streams.
 *
 * Statuses: as for `pinlane_device_buffer_upload_slice`.
 *
 * # Safety
 *
 * - `dst` is NULL or points to `bytes` writable bytes, which nobody else accesses until the call
 *   returns.
 */
pinlane_status pinlane_device_buffer_download_slice(const pinlane_stream *stream,
                                                    const pinlane_device_buffer *source,
                                                    size_t source_offset,
                                                    void *dst,
                                                    size_t bytes);

/**
 * Says how copies of ordinary memory are staged on `device`, for all handles of it. Call it right
 * after the device was opened: after the first such copy it is too late. Allocates nothing.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `INVALID_VALUE` if `options` is NULL, of an
 * unknown size or flag, or if the sizes make no ring (a slot has at least 4096 bytes, the ring 2
 * to 4096 slots, the first portion and a unit at least 1024 bytes, the first portion at most those
 * of a slot), and after the first copy.
 *
 * # Safety
 *
 * - `options` is NULL or points to an initialised struct whose `size` member is right.
 */
pinlane_status pinlane_device_set_staging(const pinlane_device *device,
                                          const pinlane_staging_options *options);

/**
 * Makes this the copy team of the process, which is shared by all devices. Copies that are under
 * way end with the former one. `options` may be NULL: the defaults. Threads start when the first
 * large copy wants help.
 *
 * Statuses: `FORKED_PROCESS`; `INVALID_VALUE` for more than 256 threads, for cores that do not
 * exist, for spinning longer than a second, or for options of an unknown size or flag.
 *
 * # Safety
 *
 * - `options` is NULL or points to an initialised struct whose `size` member is right, and whose
 *   `cores` is NULL or points to an array of `core_count` elements.
 */
pinlane_status pinlane_copy_team_install(const pinlane_copy_team_options *options);

/**
 * The message of this thread's last pinlane call that failed: which call, what was found, what to
 * do. Empty if none has failed. Valid until the thread's next pinlane call. Never NULL. While the
 * thread is ending (in destructors of its own variables, or after `main`) it says what the status
 * means, and no more.
 */
const char *pinlane_last_error(void);

/**
 * Makes `message` this thread's last message, as if a call had failed with `status`, and returns
 * `status`: for checks that a wrapper in another language makes itself. The text is copied. NULL:
 * what the status means.
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
 * The name of a status, such as "PINLANE_STATUS_BUSY"; "PINLANE_STATUS_UNKNOWN" for a number that
 * is none. A constant string, never NULL.
 */
const char *pinlane_status_name(pinlane_status status);

/**
 * The version of the library, as 1000000 * major + 1000 * minor + patch. Compare it with
 * `PINLANE_VERSION`, the version of the header.
 */
uint32_t pinlane_version(void);

/**
 * Creates a stream on `device` and writes it to `stream`, which the caller frees with
 * `pinlane_stream_free`. `options` may be NULL: non-blocking, of default priority.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`, `CUDA`; `INVALID_VALUE` if `stream` is NULL, or
 * for options of an unknown size or flag.
 *
 * # Safety
 *
 * - `options` is NULL or points to an initialised struct whose `size` member is right.
 * - `stream` is NULL or points to a variable.
 */
pinlane_status pinlane_stream_create(const pinlane_device *device,
                                     const pinlane_stream_options *options,
                                     pinlane_stream **stream);

/**
 * Borrows a `cudaStream_t` of the caller, of `device`, and writes it to `stream`, which the caller
 * frees with `pinlane_stream_free`; that does not destroy the CUDA stream. The values 0 and 1 are
 * the legacy default stream, 2 is the per-thread default stream of the calling thread, which no
 * other thread may then use (`WRONG_THREAD`).
 *
 * The CUDA stream must outlive the handle and the work enqueued through it.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `stream` is NULL.
 *
 * # Safety
 *
 * - `cuda_stream` is a stream of this device and of the CUDA runtime that pinlane is linked with.
 * - `stream` is NULL or points to a variable.
 */
pinlane_status pinlane_stream_borrow(const pinlane_device *device,
                                     void *cuda_stream,
                                     pinlane_stream **stream);

/**
 * Writes the `cudaStream_t` to `cuda_stream`. It is valid until the handle is freed.
 *
 * Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `cuda_stream` is NULL.
 *
 * # Safety
 *
 * - `cuda_stream` is NULL or points to a variable.
 */
pinlane_status pinlane_stream_native(const pinlane_stream *stream, void **cuda_stream);

/**
 * Blocks until everything enqueued on the stream before the call is complete.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`, `WRONG_THREAD`, or the error of the work or the
 * device.
 */
pinlane_status pinlane_stream_synchronize(const pinlane_stream *stream);

/**
 * Writes a ticket for everything enqueued on the stream so far to `ticket`, which the caller frees
 * with `pinlane_ticket_free`. Does not block.
 *
 * Statuses: `INVALID_HANDLE`, `STREAM_CAPTURING`, `FORKED_PROCESS`, `WRONG_THREAD`, `CUDA`.
 *
 * # Safety
 *
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_stream_record(const pinlane_stream *stream,
                                     pinlane_ticket **ticket);

/**
 * Makes later work of `stream` wait, on the device, for the operation of `ticket`. Does not block.
 * Buffers need no such call: their uses are ordered without it.
 *
 * Statuses: `INVALID_HANDLE`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
 * `WRONG_THREAD`, `CUDA`.
 */
pinlane_status pinlane_stream_wait(const pinlane_stream *stream,
                                   const pinlane_ticket *ticket);

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
pinlane_status pinlane_stream_busy(const pinlane_stream *stream,
                                   uint64_t nanoseconds,
                                   pinlane_ticket **ticket);

/**
 * Frees the handle; NULL is a no-op. Returns at once: work already enqueued is executed, and
 * buffers that it uses stay safe.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a stream.
 */
pinlane_status pinlane_stream_free(pinlane_stream *stream);

/**
 * Blocks until the operation is complete; its effects are then visible to the calling thread.
 *
 * Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`, or the error of the operation or the device.
 */
pinlane_status pinlane_ticket_wait(const pinlane_ticket *ticket);

/**
 * Writes 1 to `done` if the operation is complete, 0 if it is pending. Does not block.
 *
 * Statuses: as for `pinlane_ticket_wait`; `INVALID_VALUE` if `done` is NULL.
 *
 * # Safety
 *
 * - `done` is NULL or points to a variable.
 */
pinlane_status pinlane_ticket_is_done(const pinlane_ticket *ticket, int32_t *done);

/**
 * Frees the handle; NULL is a no-op. The operation goes on.
 *
 * Statuses: `INVALID_HANDLE` if it was freed already or never was a ticket.
 */
pinlane_status pinlane_ticket_free(pinlane_ticket *ticket);

/**
 * Copies `bytes` from `buffer`, from `offset` on, to the caller's own device memory. Does not
 * block; ordered on `stream`, and after device writes to the buffer on other streams. Other work
 * on the device memory is ordered by the caller. `ticket` may be NULL.
 *
 * Statuses: `INVALID_HANDLE`, `OUT_OF_RANGE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`,
 * `FORKED_PROCESS`, `WRONG_THREAD`: nothing was enqueued; `INVALID_VALUE` if `device_pointer` is
 * NULL; `CUDA`, `DEVICE_LOST`: the contents of the destination are unspecified.
 *
 * # Safety
 *
 * - `device_pointer` is device memory of the stream's device, of `bytes` at least, and stays
 *   allocated until the copy is complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_upload(const pinlane_stream *stream,
                              const pinlane_buffer *buffer,
                              size_t offset,
                              void *device_pointer,
                              size_t bytes,
                              pinlane_ticket **ticket);

/**
 * Copies `bytes` from the caller's own device memory to `buffer`, from `offset` on. Does not
 * block; ordered on `stream`, and after every use of the buffer on other streams. `ticket` may be
 * NULL.
 *
 * Statuses: as for `pinlane_upload`.
 *
 * # Safety
 *
 * - `device_pointer` is device memory of the stream's device, of `bytes` at least, and stays
 *   allocated until the copy is complete.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_download(const pinlane_stream *stream,
                                const void *device_pointer,
                                pinlane_buffer *buffer,
                                size_t offset,
                                size_t bytes,
                                pinlane_ticket **ticket);

/**
 * Copies `bytes` from `source`, from `source_offset` on, to `destination`, from
 * `destination_offset` on. Does not block; ordered on `stream`, and after conflicting uses of both
 * buffers on any stream. `ticket` may be NULL.
 *
 * Statuses: as for `pinlane_upload`.
 *
 * # Safety
 *
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_upload(const pinlane_stream *stream,
                                            const pinlane_buffer *source,
                                            size_t source_offset,
                                            pinlane_device_buffer *destination,
                                            size_t destination_offset,
                                            size_t bytes,
                                            pinlane_ticket **ticket);

/**
 * Copies `bytes` from `source`, from `source_offset` on, to `destination`, from
 * `destination_offset` on. Does not block; ordered as `pinlane_device_buffer_upload`.
 * `pinlane_buffer_read` of the destination waits for the copy. `ticket` may be NULL.
 *
 * Statuses: as for `pinlane_upload`.
 *
 * # Safety
 *
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_download(const pinlane_stream *stream,
                                              const pinlane_device_buffer *source,
                                              size_t source_offset,
                                              pinlane_buffer *destination,
                                              size_t destination_offset,
                                              size_t bytes,
                                              pinlane_ticket **ticket);

/**
 * Copies `bytes` between two device buffers, of one device or of two, one of which `stream`
 * belongs to. Does not block; ordered as `pinlane_device_buffer_upload`. `ticket` may be NULL.
 *
 * Statuses: as for `pinlane_upload`; `INVALID_VALUE` if both are the same buffer.
 *
 * # Safety
 *
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_copy(const pinlane_stream *stream,
                                          const pinlane_device_buffer *source,
                                          size_t source_offset,
                                          pinlane_device_buffer *destination,
                                          size_t destination_offset,
                                          size_t bytes,
                                          pinlane_ticket **ticket);

/**
 * Repeats the `pattern_bytes` bytes at `pattern`, 1 to 64, over `bytes` of the buffer from
 * `offset` on; `bytes` must be a multiple of `pattern_bytes`. The pattern may be reused as soon as
 * the call returns. Does not block; ordered as `pinlane_device_buffer_upload`. `ticket` may be
 * NULL.
 *
 * Statuses: as for `pinlane_upload`; `LENGTH_MISMATCH`; `INVALID_VALUE` if `pattern` is NULL;
 * `UNSUPPORTED` for patterns of more than 64 bytes.
 *
 * # Safety
 *
 * - `pattern` is NULL or points to `pattern_bytes` bytes.
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_fill(const pinlane_stream *stream,
                                          pinlane_device_buffer *buffer,
                                          size_t offset,
                                          size_t bytes,
                                          const void *pattern,
                                          size_t pattern_bytes,
                                          pinlane_ticket **ticket);

/**
 * Writes the 64-bit checksum of `bytes` of `buffer`, from `offset` on, to the 8 bytes of `sum`
 * from `sum_offset` on, a multiple of 8; both on the stream's device. It equals `pinlane_checksum`
 * of the same bytes. Does not block; ordered as `pinlane_device_buffer_upload`. `ticket` may be
 * NULL.
 *
 * Statuses: as for `pinlane_upload`; `INVALID_VALUE` if `sum_offset` is no multiple of 8, or both
 * are the same buffer.
 *
 * # Safety
 *
 * - `ticket` is NULL or points to a variable.
 */
pinlane_status pinlane_device_buffer_checksum(const pinlane_stream *stream,
                                              const pinlane_device_buffer *buffer,
                                              size_t offset,
                                              size_t bytes,
                                              pinlane_device_buffer *sum,
                                              size_t sum_offset,
                                              pinlane_ticket **ticket);

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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PINLANE_PINLANE_H */
