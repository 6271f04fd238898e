/* What the C interface promises beyond its happy path: layouts, refusals, outputs, ownership.
 *
 * Pools and the transfer engine have programs of their own, pool.c and transfer.c. C11, on the emulated device only: it
 * has lazy execution, which makes "in flight" certain. */

#define _POSIX_C_SOURCE 200809L /* fork, beside strict C */

#include "check.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

_Static_assert(sizeof(pinlane_emulator_options) == 32, "pinlane_emulator_options");
MEMBER(pinlane_emulator_options, size, 0);
MEMBER(pinlane_emulator_options, seed, 8);
MEMBER(pinlane_emulator_options, memory_bytes, 16);
MEMBER(pinlane_emulator_options, execution, 24);
MEMBER(pinlane_emulator_options, flags, 28);
_Static_assert(sizeof(pinlane_stream_options) == 16, "pinlane_stream_options");
MEMBER(pinlane_stream_options, size, 0);
MEMBER(pinlane_stream_options, priority, 8);
MEMBER(pinlane_stream_options, flags, 12);
_Static_assert(sizeof(pinlane_status) == 4, "pinlane_status");

/* Two devices of a lazy machine, and one of everything, on the first. */
static struct rig {
  pinlane_device *device, *other_device;
  pinlane_pool *pool;
  pinlane_stream *stream, *other_stream;
  pinlane_buffer *buffer;
  pinlane_device_buffer *gpu, *gpu2, *other_gpu;
  pinlane_ticket *ticket;
} rig;
enum { BYTES = 4096 };

static void set_up(void) {
  pinlane_emulator_options options = PINLANE_EMULATOR_OPTIONS_INIT;
  options.execution = PINLANE_EXECUTION_LAZY;
  options.memory_bytes = 1 << 20;
  pinlane_device *devices[2] = {NULL, NULL};
  OK(pinlane_emulator_create(&options, devices, 2));
  rig.device = devices[0];
  rig.other_device = devices[1];
  OK(pinlane_pool_create(rig.device, NULL, &rig.pool));
  OK(pinlane_stream_create(rig.device, NULL, &rig.stream));
  OK(pinlane_stream_create(rig.other_device, NULL, &rig.other_stream));
  OK(pinlane_buffer_alloc_zeroed(rig.pool, BYTES, &rig.buffer));
  OK(pinlane_device_buffer_alloc(rig.device, BYTES, &rig.gpu));
  OK(pinlane_device_buffer_alloc(rig.device, BYTES, &rig.gpu2));
  OK(pinlane_device_buffer_alloc(rig.other_device, BYTES, &rig.other_gpu));
  OK(pinlane_stream_record(rig.stream, &rig.ticket));
}

/* In an order that frees first what the others are made from. */
static void tear_down(void) {
  OK(pinlane_device_free(rig.device));
  OK(pinlane_device_free(rig.other_device));
  OK(pinlane_pool_free(rig.pool));
  OK(pinlane_stream_free(rig.stream));
  OK(pinlane_stream_free(rig.other_stream));
  OK(pinlane_buffer_free(rig.buffer));
  OK(pinlane_device_buffer_free(rig.gpu));
  OK(pinlane_device_buffer_free(rig.gpu2));
  OK(pinlane_device_buffer_free(rig.other_gpu));
  OK(pinlane_ticket_free(rig.ticket));
}

static void versions_and_names(void) {
  EXPECT(pinlane_version() == PINLANE_VERSION);
  EXPECT(strcmp(pinlane_status_name(PINLANE_STATUS_BUSY), "PINLANE_STATUS_BUSY") == 0);
  EXPECT(strcmp(pinlane_status_name(-1), "PINLANE_STATUS_UNKNOWN") == 0);
  char name[4] = "xxx";
  OK(pinlane_device_name(rig.device, name, sizeof name));
  EXPECT(name[3] == '\0' && strlen(name) == 3);
  int32_t ordinal = -1;
  OK(pinlane_device_ordinal(rig.other_device, &ordinal));
  EXPECT(ordinal == 1);
}

/* Calls every function that takes handles with ones that are none, of the given kinds. */
static void refuses(pinlane_device *device, pinlane_pool *pool, pinlane_stream *stream,
                    pinlane_buffer *buffer, pinlane_device_buffer *gpu, pinlane_ticket *ticket) {
  void *const untouched = &rig;
  void *out = untouched;
  const void *const_out = untouched;
  size_t size = 77, size2 = 77;
  int32_t number = 77;
  char name[8] = "as was";
  pinlane_pool *new_pool = untouched;
  pinlane_stream *new_stream = untouched;
  pinlane_buffer *new_buffer = untouched;
  pinlane_device_buffer *new_gpu = untouched;
  pinlane_ticket *new_ticket = untouched;
  pinlane_pool_stats stats = PINLANE_POOL_STATS_INIT;
  const pinlane_pool_stats stats_before = stats;
  pinlane_class_stats class_stats = {77, 0, 0, 0, 0, 0, 0};

  REFUSED(INVALID_HANDLE, pinlane_device_name(device, name, sizeof name));
  REFUSED(INVALID_HANDLE, pinlane_device_ordinal(device, &number));
  REFUSED(INVALID_HANDLE, pinlane_device_memory_info(device, &size, &size2));
  REFUSED(INVALID_HANDLE, pinlane_pool_create(device, NULL, &new_pool));
  REFUSED(INVALID_HANDLE, pinlane_stream_create(device, NULL, &new_stream));
  REFUSED(INVALID_HANDLE, pinlane_stream_borrow(device, NULL, &new_stream));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_alloc(device, 1, &new_gpu));
  REFUSED(INVALID_HANDLE, pinlane_pool_clone(pool, &new_pool));
  REFUSED(INVALID_HANDLE, pinlane_pool_is_same(pool, rig.pool, &number));
  REFUSED(INVALID_HANDLE, pinlane_pool_is_same(rig.pool, pool, &number));
  REFUSED(INVALID_HANDLE, pinlane_pool_get_stats(pool, &stats));
  REFUSED(INVALID_HANDLE, pinlane_pool_get_class_stats(pool, &class_stats, 1, &size));
  REFUSED(INVALID_HANDLE, pinlane_pool_trim(pool, 0, &size));
  REFUSED(INVALID_HANDLE, pinlane_pool_allocate(pool, 1, 1, &out));
  REFUSED(INVALID_HANDLE, pinlane_pool_deallocate(pool, untouched));
  REFUSED(INVALID_HANDLE, pinlane_pool_record_use(pool, untouched, rig.stream));
  REFUSED(INVALID_HANDLE, pinlane_pool_record_use(rig.pool, untouched, stream));
  REFUSED(INVALID_HANDLE, pinlane_buffer_alloc(pool, 1, &new_buffer));
  REFUSED(INVALID_HANDLE, pinlane_buffer_alloc_zeroed(pool, 1, &new_buffer));
  REFUSED(INVALID_HANDLE, pinlane_buffer_try_alloc(pool, 1, &new_buffer));
  REFUSED(INVALID_HANDLE, pinlane_buffer_alloc_aligned(pool, 1, 1, &new_buffer));
  REFUSED(INVALID_HANDLE, pinlane_buffer_alloc_timeout(pool, 1, 1, &new_buffer));
  REFUSED(INVALID_HANDLE, pinlane_buffer_register(device, name, sizeof name, &new_buffer));
  REFUSED(INVALID_HANDLE, pinlane_buffer_read(buffer, &const_out));
  REFUSED(INVALID_HANDLE, pinlane_buffer_write(buffer, &out));
  REFUSED(INVALID_HANDLE, pinlane_buffer_try_read(buffer, &const_out));
  REFUSED(INVALID_HANDLE, pinlane_buffer_try_write(buffer, &out));
  REFUSED(INVALID_HANDLE, pinlane_buffer_address(buffer, &out));
  REFUSED(INVALID_HANDLE, pinlane_buffer_size(buffer, &size));
  REFUSED(INVALID_HANDLE, pinlane_buffer_acquire(buffer, rig.stream));
  REFUSED(INVALID_HANDLE, pinlane_buffer_acquire(rig.buffer, stream));
  REFUSED(INVALID_HANDLE, pinlane_buffer_record_use(buffer, rig.stream));
  REFUSED(INVALID_HANDLE, pinlane_buffer_record_use(rig.buffer, stream));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_address(gpu, &out));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_size(gpu, &size));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_acquire(gpu, rig.stream));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_acquire(rig.gpu, stream));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_record_use(gpu, rig.stream));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_record_use(rig.gpu, stream));
  REFUSED(INVALID_HANDLE, pinlane_stream_native(stream, &out));
  REFUSED(INVALID_HANDLE, pinlane_stream_synchronize(stream));
  REFUSED(INVALID_HANDLE, pinlane_stream_record(stream, &new_ticket));
  REFUSED(INVALID_HANDLE, pinlane_stream_wait(stream, rig.ticket));
  REFUSED(INVALID_HANDLE, pinlane_stream_wait(rig.stream, ticket));
  REFUSED(INVALID_HANDLE, pinlane_stream_busy(stream, 1, &new_ticket));
  REFUSED(INVALID_HANDLE, pinlane_ticket_wait(ticket));
  REFUSED(INVALID_HANDLE, pinlane_ticket_is_done(ticket, &number));

  pinlane_stream *s = rig.stream;
  pinlane_ticket **t = &new_ticket;
  REFUSED(INVALID_HANDLE, pinlane_upload(stream, rig.buffer, 0, name, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_upload(s, buffer, 0, name, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_download(stream, name, rig.buffer, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_download(s, name, buffer, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_upload(stream, rig.buffer, 0, rig.gpu, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_upload(s, buffer, 0, rig.gpu, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_upload(s, rig.buffer, 0, gpu, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_download(stream, rig.gpu, 0, rig.buffer, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_download(s, gpu, 0, rig.buffer, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_download(s, rig.gpu, 0, buffer, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_copy(stream, rig.gpu, 0, rig.gpu2, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_copy(s, gpu, 0, rig.gpu2, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_copy(s, rig.gpu, 0, gpu, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_fill(stream, rig.gpu, 0, 1, "x", 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_fill(s, gpu, 0, 1, "x", 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_checksum(stream, rig.gpu, 0, 1, rig.gpu2, 0, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_checksum(s, gpu, 0, 1, rig.gpu2, 0, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_checksum(s, rig.gpu, 0, 1, gpu, 0, t));
  REFUSED(INVALID_HANDLE, pinlane_upload_slice(stream, name, name, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_download_slice(stream, name, name, 1));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_upload_slice(stream, name, rig.gpu, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_upload_slice(s, name, gpu, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_download_slice(stream, rig.gpu, 0, name, 1));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_download_slice(s, gpu, 0, name, 1));
  REFUSED(INVALID_HANDLE, pinlane_upload_batch(stream, NULL, 0, NULL, t));
  REFUSED(INVALID_HANDLE, pinlane_download_batch(stream, NULL, 0, NULL, t));
  REFUSED(INVALID_HANDLE, pinlane_copy_batch(stream, NULL, 0, t));
  REFUSED(INVALID_HANDLE, pinlane_upload_file(s, (void *)gpu, 0, name, 1, t));
  if (gpu != NULL) { /* NULL is no buffer there, and the address is needed */
    const pinlane_copy copy = {.src = name, .bytes = 1, .device_buffer = gpu};
    const pinlane_device_copy between = {.src = name, .bytes = 1, .dst_buffer = gpu};
    REFUSED(INVALID_HANDLE, pinlane_upload_batch(s, &copy, 1, NULL, t));
    REFUSED(INVALID_HANDLE, pinlane_copy_batch(s, &between, 1, t));
  }
  if (buffer != NULL) {
    const pinlane_copy copy = {.src = name, .bytes = 1, .buffer = buffer};
    REFUSED(INVALID_HANDLE, pinlane_download_batch(s, &copy, 1, NULL, t));
  }

  EXPECT(pinlane_last_cuda_error() == 0);
  EXPECT(out == untouched && const_out == untouched);
  EXPECT(size == 77 && size2 == 77 && number == 77);
  EXPECT(strcmp(name, "as was") == 0);
  EXPECT((void *)new_pool == untouched && (void *)new_stream == untouched);
  EXPECT((void *)new_buffer == untouched && (void *)new_gpu == untouched);
  EXPECT((void *)new_ticket == untouched);
  EXPECT(memcmp(&stats, &stats_before, sizeof stats) == 0 && class_stats.block_bytes == 77);
}

static void no_handles(void) {
  refuses(NULL, NULL, NULL, NULL, NULL, NULL);

  /* Of another type. */
  refuses((void *)rig.pool, (void *)rig.stream, (void *)rig.buffer, (void *)rig.gpu,
          (void *)rig.ticket, (void *)rig.device);

  /* An address, as of an object that somebody else allocated. */
  long long local = 0;
  refuses((void *)&local, (void *)&local, (void *)&local, (void *)&local, (void *)&local,
          (void *)&local);

  /* Freed, while all that they were made from still lives. */
  struct rig live = rig;
  set_up();
  struct rig stale = rig;
  tear_down();
  rig = live;
  refuses(stale.device, stale.pool, stale.stream, stale.buffer, stale.gpu, stale.ticket);

  /* Freed twice; the second time is harmless, also for whoever got the slot meanwhile. */
  set_up();
  REFUSED(INVALID_HANDLE, pinlane_device_free(stale.device));
  REFUSED(INVALID_HANDLE, pinlane_pool_free(stale.pool));
  REFUSED(INVALID_HANDLE, pinlane_stream_free(stale.stream));
  REFUSED(INVALID_HANDLE, pinlane_buffer_free(stale.buffer));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_free(stale.gpu));
  REFUSED(INVALID_HANDLE, pinlane_ticket_free(stale.ticket));
  tear_down();
  rig = live;

  OK(pinlane_device_free(NULL));
  OK(pinlane_pool_free(NULL));
  OK(pinlane_stream_free(NULL));
  OK(pinlane_buffer_free(NULL));
  OK(pinlane_device_buffer_free(NULL));
  OK(pinlane_ticket_free(NULL));
}

static void bad_outputs(void) {
  REFUSED(INVALID_VALUE, pinlane_device_open(0, NULL));
  REFUSED(INVALID_VALUE, pinlane_device_open_or_emulated(NULL));
  REFUSED(INVALID_VALUE, pinlane_emulator_create(NULL, NULL, 1));
  REFUSED(INVALID_VALUE, pinlane_device_count(NULL));
  REFUSED(INVALID_VALUE, pinlane_device_name(rig.device, NULL, 8));
  char letter = 'x';
  REFUSED(INVALID_VALUE, pinlane_device_name(rig.device, &letter, 0));
  size_t size = 77;
  REFUSED(INVALID_VALUE, pinlane_device_memory_info(rig.device, &size, NULL));
  EXPECT(size == 77 && letter == 'x');
  REFUSED(INVALID_VALUE, pinlane_buffer_alloc(rig.pool, 1, NULL));
  REFUSED(INVALID_VALUE, pinlane_buffer_read(rig.buffer, NULL));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_alloc(rig.device, 1, NULL));

  /* Misaligned, and as it was afterwards. */
  _Alignas(16) char raw[32], before[32];
  memset(raw, 0x5a, sizeof raw);
  memcpy(before, raw, sizeof raw);
  void *off = raw + 1;
  REFUSED(INVALID_VALUE, pinlane_emulator_create(NULL, off, 1));
  REFUSED(INVALID_VALUE, pinlane_pool_create(rig.device, NULL, off));
  REFUSED(INVALID_VALUE, pinlane_pool_create(rig.device, off, &rig.pool));
  REFUSED(INVALID_VALUE, pinlane_pool_clone(rig.pool, off));
  REFUSED(INVALID_VALUE, pinlane_pool_is_same(rig.pool, rig.pool, off));
  REFUSED(INVALID_VALUE, pinlane_pool_get_stats(rig.pool, off));
  REFUSED(INVALID_VALUE, pinlane_pool_get_class_stats(rig.pool, off, 1, &size));
  REFUSED(INVALID_VALUE, pinlane_pool_get_class_stats(rig.pool, NULL, 0, off));
  REFUSED(INVALID_VALUE, pinlane_pool_trim(rig.pool, 0, off));
  REFUSED(INVALID_VALUE, pinlane_pool_allocate(rig.pool, 1, 1, off));
  REFUSED(INVALID_VALUE, pinlane_buffer_alloc_aligned(rig.pool, 1, 1, off));
  REFUSED(INVALID_VALUE, pinlane_buffer_alloc_timeout(rig.pool, 1, 1, off));
  REFUSED(INVALID_VALUE, pinlane_buffer_alloc(rig.pool, 1, off));
  REFUSED(INVALID_VALUE, pinlane_buffer_register(rig.device, raw, sizeof raw, off));
  REFUSED(INVALID_VALUE, pinlane_buffer_write(rig.buffer, off));
  REFUSED(INVALID_VALUE, pinlane_buffer_size(rig.buffer, off));
  REFUSED(INVALID_VALUE, pinlane_ticket_is_done(rig.ticket, off));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, 1, "x", 1, off));
  EXPECT(size == 77 && memcmp(raw, before, sizeof raw) == 0);
}

static void bad_options(void) {
  pinlane_device *device = NULL;
  pinlane_emulator_options machine = PINLANE_EMULATOR_OPTIONS_INIT;
  REFUSED(INVALID_VALUE, pinlane_emulator_create(&machine, &device, 0));
  REFUSED(INVALID_VALUE, pinlane_emulator_create(&machine, &device, 65));
  machine.execution = 2;
  REFUSED(INVALID_VALUE, pinlane_emulator_create(&machine, &device, 1));
  machine.execution = PINLANE_EXECUTION_EAGER;
  machine.flags = 1;
  REFUSED(INVALID_VALUE, pinlane_emulator_create(&machine, &device, 1));
  machine.flags = 0;
  machine.size++;
  REFUSED(INVALID_VALUE, pinlane_emulator_create(&machine, &device, 1));
  EXPECT(device == NULL);

  pinlane_stream *stream = NULL;
  pinlane_stream_options lane = PINLANE_STREAM_OPTIONS_INIT;
  lane.flags = 2;
  REFUSED(INVALID_VALUE, pinlane_stream_create(rig.device, &lane, &stream));
  lane.flags = PINLANE_STREAM_BLOCKING;
  lane.size = 0;
  REFUSED(INVALID_VALUE, pinlane_stream_create(rig.device, &lane, &stream));
  EXPECT(stream == NULL);
  lane.size = sizeof lane;
  OK(pinlane_stream_create(rig.device, &lane, &stream));
  OK(pinlane_stream_free(stream));
}

static void bad_ranges(void) {
  pinlane_stream *s = rig.stream;
  pinlane_ticket *ticket = NULL, **t = &ticket;
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_upload(s, rig.buffer, 1, rig.gpu, 0, BYTES, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_upload(s, rig.buffer, 0, rig.gpu, 1, BYTES, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_upload(s, rig.buffer, SIZE_MAX, rig.gpu, 0, 2, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_download(s, rig.gpu, 2, rig.buffer, 0, SIZE_MAX, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_fill(s, rig.gpu, BYTES + 1, 0, "x", 1, t));
  REFUSED(LENGTH_MISMATCH, pinlane_device_buffer_fill(s, rig.gpu, 0, 7, "xy", 2, t));
  REFUSED(LENGTH_MISMATCH, pinlane_device_buffer_fill(s, rig.gpu, 0, 7, "xy", 0, t));
  char pattern[65] = {0};
  REFUSED(UNSUPPORTED, pinlane_device_buffer_fill(s, rig.gpu, 0, 65, pattern, 65, t));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_fill(s, rig.gpu, 0, 8, NULL, 8, t));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_copy(s, rig.gpu, 0, rig.gpu, 8, 8, t));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_checksum(s, rig.gpu, 0, 8, rig.gpu, 8, t));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_checksum(s, rig.gpu, 0, 8, rig.gpu2, 4, t));
  REFUSED(INVALID_VALUE, pinlane_upload(s, rig.buffer, 0, NULL, 8, t));
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_upload(s, rig.buffer, 0, rig.other_gpu, 0, 8, t));
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_fill(rig.other_stream, rig.gpu, 0, 8, "x", 1, t));

  /* Of another machine: nothing of it can be ordered with this one's. */
  pinlane_device *elsewhere = NULL;
  pinlane_stream *foreign = NULL;
  OK(pinlane_emulator_create(NULL, &elsewhere, 1));
  OK(pinlane_stream_create(elsewhere, NULL, &foreign));
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_upload(foreign, rig.buffer, 0, rig.gpu, 0, 8, t));
  REFUSED(WRONG_DEVICE, pinlane_buffer_acquire(rig.buffer, foreign));
  REFUSED(WRONG_DEVICE, pinlane_buffer_record_use(rig.buffer, foreign));
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_record_use(rig.gpu, foreign));
  OK(pinlane_stream_free(foreign));
  OK(pinlane_device_free(elsewhere));
  REFUSED(INVALID_VALUE, pinlane_stream_busy(s, UINT64_MAX, t));
  uint64_t sum = 77;
  REFUSED(INVALID_VALUE, pinlane_checksum(NULL, 1, &sum));
  EXPECT(ticket == NULL && sum == 77);
  OK(pinlane_checksum(NULL, 0, &sum));
  OK(pinlane_device_buffer_upload(s, rig.buffer, BYTES, rig.gpu, BYTES, 0, NULL));
}

static void limits_of_device_memory(void) {
  pinlane_device_buffer *gpu = NULL;
  REFUSED(OUT_OF_DEVICE_MEMORY, pinlane_device_buffer_alloc(rig.device, 1 << 30, &gpu));
  EXPECT(pinlane_last_cuda_error() == 2); /* cudaErrorMemoryAllocation */
  EXPECT(gpu == NULL);
  REFUSED(NO_DEVICE, pinlane_device_open(9999, &rig.device));
}

/* Each buffer is freed right behind the call that enqueued its copy; the next one may get its memory only
 * when the copy is done, and the budget forces that for most of them. */
static void frees_in_flight(void) {
  enum { BUFFERS = 64, EACH = 4096 };
  pinlane_pool *pool = NULL;
  pinlane_pool_options budget = PINLANE_POOL_OPTIONS_INIT;
  budget.max_bytes = 4 * EACH;
  OK(pinlane_pool_create(rig.device, &budget, &pool));
  pinlane_device_buffer *gpu = NULL;
  OK(pinlane_device_buffer_alloc(rig.device, (size_t)BUFFERS * EACH, &gpu));
  for (size_t i = 0; i < BUFFERS; i++) {
    pinlane_buffer *buffer = NULL;
    void *data = NULL;
    OK(pinlane_buffer_alloc(pool, EACH, &buffer));
    OK(pinlane_buffer_write(buffer, &data));
    memset(data, (int)i, EACH);
    OK(pinlane_device_buffer_upload(rig.stream, buffer, 0, gpu, i * EACH, EACH, NULL));
    OK(pinlane_buffer_free(buffer));
  }
  pinlane_pool_stats stats = PINLANE_POOL_STATS_INIT;
  OK(pinlane_pool_get_stats(pool, &stats));
  EXPECT(stats.peak_bytes == 4 * EACH && stats.live_bytes == 0 && stats.waits > 0);
  OK(pinlane_pool_free(pool));

  pinlane_buffer *all = NULL;
  const void *data = NULL;
  OK(pinlane_buffer_alloc(rig.pool, (size_t)BUFFERS * EACH, &all));
  OK(pinlane_device_buffer_download(rig.stream, gpu, 0, all, 0, (size_t)BUFFERS * EACH, NULL));
  OK(pinlane_device_buffer_free(gpu));
  REFUSED(NOT_READY, pinlane_buffer_try_read(all, &data));
  EXPECT(data == NULL);
  OK(pinlane_buffer_read(all, &data));
  for (size_t i = 0; i < (size_t)BUFFERS * EACH; i++) {
    if (((const unsigned char *)data)[i] != i / EACH) {
      EXPECT(!"each buffer's bytes have arrived");
      break;
    }
  }
  OK(pinlane_buffer_free(all));
}

/* Memory of the program's own: page-locked once, lent to a buffer, and its own again when that is freed. */
static void memory_of_ones_own(void) {
  enum { LENT = 3 * BYTES / 4 };
  unsigned char *memory = malloc(BYTES);
  if (memory == NULL) {
    abort();
  }
  memset(memory, 5, BYTES);
  pinlane_buffer *buffer = NULL, *again = NULL;
  REFUSED(INVALID_VALUE, pinlane_buffer_register(rig.device, NULL, 1, &buffer));
  REFUSED(INVALID_VALUE, pinlane_buffer_register(rig.device, memory, SIZE_MAX, &buffer));
  REFUSED(INVALID_VALUE, pinlane_buffer_register(rig.device, memory, BYTES, NULL));
  EXPECT(buffer == NULL);
  OK(pinlane_buffer_register(rig.device, NULL, 0, &buffer));
  OK(pinlane_buffer_free(buffer));

  /* Out of the middle of an object, at an address that is aligned to nothing. */
  OK(pinlane_buffer_register(rig.device, memory + 1, LENT, &buffer));
  REFUSED(INVALID_VALUE, pinlane_buffer_register(rig.device, memory, BYTES, &again));
  EXPECT(pinlane_last_cuda_error() == 712 &&
         again == NULL); /* cudaErrorHostMemoryAlreadyRegistered */

  const void *data = NULL;
  void *address = NULL;
  size_t size = 0;
  OK(pinlane_buffer_size(buffer, &size));
  OK(pinlane_buffer_address(buffer, &address));
  EXPECT(size == LENT && address == memory + 1);
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu2, 0, LENT, "abcd", 4, NULL));
  OK(pinlane_device_buffer_upload(rig.stream, buffer, 0, rig.gpu, 0, LENT, NULL));
  OK(pinlane_device_buffer_download(rig.stream, rig.gpu2, 0, buffer, 0, LENT, NULL));
  REFUSED(NOT_READY, pinlane_buffer_try_read(buffer, &data));
  OK(pinlane_buffer_read(buffer, &data));
  EXPECT(data == address && memcmp(data, "abcdabcd", 8) == 0);
  OK(pinlane_buffer_write(buffer, &address));
  memset(address, 7, LENT);

  /* Freed in the middle of copies, which it waits for: first what was uploaded comes, then that. */
  OK(pinlane_device_buffer_upload(rig.stream, buffer, 0, rig.gpu2, 0, LENT, NULL));
  OK(pinlane_device_buffer_download(rig.stream, rig.gpu, 0, buffer, 0, LENT / 2, NULL));
  OK(pinlane_buffer_record_use(buffer, rig.stream));
  OK(pinlane_buffer_free(buffer));
  REFUSED(INVALID_HANDLE, pinlane_buffer_free(buffer));
  for (size_t i = 0; i < BYTES; i++) {
    const int sevens = i > LENT / 2 && i <= LENT;
    if (memory[i] != (sevens ? 7 : 5)) {
      EXPECT(!"the memory holds what was copied to it, and around that what it held");
      break;
    }
  }

  OK(pinlane_buffer_register(rig.device, memory, BYTES, &again)); /* no longer page-locked */
  OK(pinlane_buffer_free(again));
  free(memory);
}

static void tickets(void) {
  pinlane_ticket *ticket = NULL;
  int32_t done = -1;
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, BYTES, "abcd", 4, &ticket));
  OK(pinlane_ticket_is_done(ticket, &done));
  EXPECT(done == 0);
  OK(pinlane_stream_wait(rig.other_stream, ticket));
  OK(pinlane_ticket_wait(ticket));
  OK(pinlane_ticket_is_done(ticket, &done));
  EXPECT(done == 1);
  OK(pinlane_ticket_free(ticket));
  OK(pinlane_stream_synchronize(rig.other_stream));
}

/* Messages belong to their thread, and a handle is freed once, however many try at once. */
struct racer {
  pinlane_buffer *buffer;
  pinlane_status freed;
  int silent_at_first;
};

static void *race(void *argument) {
  struct racer *racer = argument;
  racer->silent_at_first = pinlane_last_error()[0] == '\0';
  void *data = NULL;
  for (int i = 0; i < 100; i++) { /* OK, BUSY, or freed by another: never a crash */
    pinlane_buffer_write(racer->buffer, &data);
    pinlane_device_buffer_upload(rig.stream, racer->buffer, 0, rig.gpu, 0, BYTES, NULL);
  }
  racer->freed = pinlane_buffer_free(racer->buffer);
  return NULL;
}

static void threads(void) {
  enum { RACERS = 4 };
  pinlane_buffer *buffer = NULL;
  OK(pinlane_buffer_alloc(rig.pool, BYTES, &buffer));
  REFUSED(INVALID_HANDLE, pinlane_ticket_wait(NULL)); /* a message on this thread only */
  struct racer racers[RACERS];
  pthread_t ids[RACERS];
  for (int i = 0; i < RACERS; i++) {
    racers[i].buffer = buffer;
    if (pthread_create(&ids[i], NULL, race, &racers[i]) != 0) {
      abort();
    }
  }
  int freed = 0;
  for (int i = 0; i < RACERS; i++) {
    pthread_join(ids[i], NULL);
    EXPECT(racers[i].silent_at_first);
    EXPECT(racers[i].freed == PINLANE_STATUS_OK ||
           racers[i].freed == PINLANE_STATUS_INVALID_HANDLE);
    freed += racers[i].freed == PINLANE_STATUS_OK;
  }
  EXPECT(freed == 1);
}

/* A child is refused everything, whatever it had from its parent; freeing there leaks, quietly. */
static void forks(void) {
  void *memory = NULL;
  OK(pinlane_pool_allocate(rig.pool, BYTES, 1, &memory));
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    void *data = NULL;
    pinlane_device *device = NULL;
    pinlane_file *file = NULL;
    int wrong = 0;
    alarm(20); /* a call that hangs ends the child */
    wrong |= pinlane_buffer_read(rig.buffer, (const void **)&data) != PINLANE_STATUS_FORKED_PROCESS;
    wrong |= pinlane_stream_synchronize(rig.stream) != PINLANE_STATUS_FORKED_PROCESS;
    wrong |= pinlane_device_open_or_emulated(&device) != PINLANE_STATUS_FORKED_PROCESS;
    wrong |= pinlane_emulator_create(NULL, &device, 1) != PINLANE_STATUS_FORKED_PROCESS;
    wrong |= pinlane_pool_allocate(rig.pool, 1, 1, &data) != PINLANE_STATUS_FORKED_PROCESS;
    wrong |= pinlane_copy_team_install(NULL) != PINLANE_STATUS_FORKED_PROCESS;
    wrong |= pinlane_file_open("/dev/null", 0, &file) != PINLANE_STATUS_FORKED_PROCESS;
    wrong |= pinlane_buffer_free(rig.buffer) != PINLANE_STATUS_OK;
    wrong |= pinlane_pool_deallocate(rig.pool, memory) != PINLANE_STATUS_OK;
    wrong |= data != NULL || device != NULL;
    _exit(wrong);
  }
  int status = -1;
  EXPECT(child > 0 && waitpid(child, &status, 0) == child);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  const void *data = NULL;
  OK(pinlane_buffer_read(rig.buffer, &data)); /* the parent's is as it was */
  OK(pinlane_pool_deallocate(rig.pool, memory));
}

int main(void) {
  set_up();
  versions_and_names();
  no_handles();
  bad_outputs();
  bad_options();
  bad_ranges();
  limits_of_device_memory();
  frees_in_flight();
  memory_of_ones_own();
  tickets();
  threads();
  forks();
  tear_down();
  return verdict("the C interface");
}
