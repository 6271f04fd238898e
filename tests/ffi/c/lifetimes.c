/* Ownership and lifetimes: buffers freed in flight, registered memory, tickets, threads, forks.
 * C11, on a lazy emulated device: work that nothing waits for stays in flight. */

#define _POSIX_C_SOURCE 200809L /* fork, beside strict C */

#include "rig.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Each buffer is freed right after the call that enqueued its copy. Its memory may serve the next
 * one only when the copy is done; the budget forces that for most of them. */
static void c_rule_04_memory_freed_in_flight_is_reused_when_the_device_is_done(void) {
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

/* The program's own memory is lent to a buffer, and comes back when the buffer is freed. */
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

  /* A part of an object, at an unaligned address. */
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

  /* Freed in the middle of copies: the call waits for them. */
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

/* Memory that is only read is a source, and nothing writes to it. */
static void memory_to_read_only(void) {
  static const unsigned char table[BYTES] = {1, 2, 3};
  pinlane_buffer *buffer = NULL, *again = NULL;
  REFUSED(INVALID_VALUE, pinlane_buffer_register_read_only(rig.device, NULL, 1, &buffer));
  REFUSED(INVALID_VALUE, pinlane_buffer_register_read_only(rig.device, table, BYTES, NULL));
  OK(pinlane_buffer_register_read_only(rig.device, table, BYTES, &buffer));
  REFUSED(INVALID_VALUE, pinlane_buffer_register_read_only(rig.device, table, BYTES, &again));
  OK(pinlane_device_buffer_upload(rig.stream, buffer, 0, rig.gpu, 0, BYTES, NULL));
  const void *data = NULL;
  OK(pinlane_buffer_try_read(buffer, &data)); /* though the upload has not run */
  EXPECT(data == table);

  void *to = NULL;
  pinlane_ticket *ticket = NULL;
  pinlane_foreign *foreign = NULL;
  REFUSED(INVALID_VALUE, pinlane_buffer_write(buffer, &to));
  EXPECT(strstr(pinlane_last_error(), "the buffer is only read") != NULL && to == NULL);
  REFUSED(INVALID_VALUE, pinlane_buffer_try_write(buffer, &to));
  REFUSED(INVALID_VALUE,
          pinlane_device_buffer_download(rig.stream, rig.gpu, 0, buffer, 0, 1, &ticket));
  const pinlane_copy down = {.buffer = buffer, .device_buffer = rig.gpu, .bytes = 1};
  REFUSED(INVALID_VALUE, pinlane_download_batch(rig.stream, &down, 1, NULL, &ticket));
  pinlane_use use = {.buffer = buffer, .access = PINLANE_ACCESS_WRITE};
  REFUSED(INVALID_VALUE, pinlane_foreign_begin(rig.stream, &use, 1, &foreign));
  use.access = PINLANE_ACCESS_READ;
  OK(pinlane_foreign_begin(rig.stream, &use, 1, &foreign));
  OK(pinlane_foreign_end(foreign, NULL));
  pinlane_copy up = down;
  up.bytes = 3;
  OK(pinlane_upload_batch(rig.stream, &up, 1, NULL, NULL));
  OK(pinlane_buffer_free(buffer)); /* waits for the copies */

  OK(pinlane_buffer_register_read_only(rig.device, table, BYTES, &again));
  OK(pinlane_buffer_free(again));
  unsigned char found[3] = {0};
  OK(pinlane_device_buffer_download_slice(rig.stream, rig.gpu, 0, found, 3));
  EXPECT(memcmp(found, table, 3) == 0);
}

/* The program's own device memory is lent to a buffer: its uses are ordered like any other, and it
 * is never freed. */
static void device_memory_of_ones_own(void) {
  void *memory = NULL, *address = NULL;
  pinlane_device_buffer *lent = NULL, *empty = NULL;
  size_t size = 77;
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, BYTES, "x", 1, NULL));
  OK(pinlane_stream_synchronize(rig.stream)); /* the memory is there: it stands for a cudaMalloc */
  OK(pinlane_device_buffer_address(rig.gpu, &memory));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_borrow(rig.device, NULL, 1, &lent));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_borrow(rig.device, memory, SIZE_MAX, &lent));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_borrow(rig.device, memory, BYTES, NULL));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_borrow(NULL, memory, BYTES, &lent));
  EXPECT(lent == NULL);
  OK(pinlane_device_buffer_borrow(rig.device, NULL, 0, &empty));
  OK(pinlane_device_buffer_free(empty));

  OK(pinlane_device_buffer_borrow(rig.device, memory, BYTES, &lent));
  OK(pinlane_device_buffer_address(lent, &address));
  OK(pinlane_device_buffer_size(lent, &size));
  EXPECT(address == memory && size == BYTES);
  pinlane_stream *other = NULL;
  const void *data = NULL;
  OK(pinlane_stream_create(rig.device, NULL, &other));
  OK(pinlane_device_buffer_fill(rig.stream, lent, 0, BYTES, "lend", 4, NULL));
  OK(pinlane_device_buffer_download(other, lent, 0, rig.buffer, 0, BYTES, NULL)); /* waits */
  OK(pinlane_buffer_read(rig.buffer, &data));
  EXPECT(memcmp((const char *)data + BYTES - 8, "lendlend", 8) == 0);
  OK(pinlane_device_buffer_free(lent));
  OK(pinlane_device_buffer_download(rig.stream, rig.gpu, 0, rig.buffer, 0, BYTES, NULL));
  OK(pinlane_buffer_read(rig.buffer, &data)); /* the memory is there as before */
  EXPECT(memcmp(data, "lend", 4) == 0);
  OK(pinlane_stream_free(other));
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

/* Each thread has its own message. Of several threads that free a handle, one succeeds. */
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

static void c_rule_05_each_thread_has_its_own_message(void) {
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

/* A forked child is refused every call. Freeing there succeeds and leaks. */
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
  OK(pinlane_buffer_read(rig.buffer, &data)); /* the parent can still use it */
  OK(pinlane_pool_deallocate(rig.pool, memory));
}

int main(void) {
  set_up(BYTES, BYTES);
  c_rule_04_memory_freed_in_flight_is_reused_when_the_device_is_done();
  memory_of_ones_own();
  memory_to_read_only();
  device_memory_of_ones_own();
  tickets();
  c_rule_05_each_thread_has_its_own_message();
  forks();
  tear_down();
  return verdict("lifetimes");
}
