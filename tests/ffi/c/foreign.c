/* The program's own work, which declares what it reads and writes. C11, on a lazy emulated device:
 * work runs only when the program waits. */

#include "rig.h"

#include <pthread.h>
#include <stdlib.h>

_Static_assert(sizeof(pinlane_use) == 32, "pinlane_use");
MEMBER(pinlane_use, buffer, 0);
MEMBER(pinlane_use, device_buffer, 8);
MEMBER(pinlane_use, access, 16);
MEMBER(pinlane_use, flags, 20);
MEMBER(pinlane_use, reserved, 24);

static pinlane_use of_host(pinlane_buffer *buffer, int32_t access) {
  const pinlane_use use = {.buffer = buffer, .access = access};
  return use;
}

static pinlane_use of_device(pinlane_device_buffer *buffer, int32_t access) {
  const pinlane_use use = {.device_buffer = buffer, .access = access};
  return use;
}

static int is_done(const pinlane_ticket *ticket) {
  int32_t done = -1;
  OK(pinlane_ticket_is_done(ticket, &done));
  return done;
}

/* Work of a millisecond that uses `uses`. Here pinlane enqueues it in place of a program. */
static pinlane_ticket *launch(pinlane_stream *stream, const pinlane_use *uses, size_t count) {
  pinlane_foreign *work = NULL;
  pinlane_ticket *ticket = NULL;
  OK(pinlane_foreign_begin(stream, uses, count, &work));
  OK(pinlane_stream_busy(stream, 1000 * 1000, NULL));
  OK(pinlane_foreign_end(work, &ticket));
  return ticket;
}

static void refusals(void) {
  pinlane_stream *s = rig.stream;
  pinlane_foreign *work = NULL;
  const pinlane_use good = of_device(rig.gpu, PINLANE_ACCESS_READ);
#define WITH(change)                                                                               \
  do {                                                                                             \
    pinlane_use use = good;                                                                        \
    use.change;                                                                                    \
    REFUSED(INVALID_VALUE, pinlane_foreign_begin(s, &use, 1, &work));                              \
  } while (0)
  WITH(device_buffer = NULL);
  WITH(buffer = rig.buffer);
  WITH(access = 2);
  WITH(access = -1);
  WITH(flags = 1);
  WITH(reserved = 1);
#undef WITH
  REFUSED(INVALID_VALUE, pinlane_foreign_begin(s, NULL, 1, &work));
  REFUSED(INVALID_VALUE, pinlane_foreign_begin(s, &good, 1, NULL));
  REFUSED(INVALID_HANDLE, pinlane_foreign_begin(NULL, &good, 1, &work));
  pinlane_use stale = good;
  stale.device_buffer = (pinlane_device_buffer *)rig.buffer;
  REFUSED(INVALID_HANDLE, pinlane_foreign_begin(s, &stale, 1, &work));
  EXPECT(work == NULL);
  OK(pinlane_foreign_end(NULL, NULL));
  OK(pinlane_foreign_begin(s, NULL, 0, &work));
  OK(pinlane_foreign_end(work, NULL));
  REFUSED(INVALID_HANDLE, pinlane_foreign_end(work, NULL));
}

/* While work is begun, conflicting calls are refused, and others are not. */
static void borrows(void) {
  const pinlane_use uses[] = {of_device(rig.gpu, PINLANE_ACCESS_READ),
                              of_host(rig.buffer, PINLANE_ACCESS_READ),
                              of_device(rig.gpu2, PINLANE_ACCESS_READ),
                              of_device(rig.gpu2, PINLANE_ACCESS_WRITE)};
  pinlane_foreign *work = NULL, *other = NULL;
  const void *data = NULL;
  void *written = NULL;
  OK(pinlane_foreign_begin(rig.stream, uses, 4, &work));
  REFUSED(BUSY, pinlane_buffer_write(rig.buffer, &written));
  OK(pinlane_buffer_read(rig.buffer, &data));
  REFUSED(BUSY, pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, 1, "a", 1, NULL));
  OK(pinlane_foreign_begin(rig.stream, uses, 2, &other));
  OK(pinlane_foreign_end(other, NULL));
  REFUSED(BUSY, pinlane_foreign_begin(rig.stream, uses + 2, 1, &other)); /* named twice: written */
  OK(pinlane_foreign_end(work, NULL));
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, 1, "a", 1, NULL));
  OK(pinlane_stream_synchronize(rig.stream));
}

/* 4 threads launch work on the same weights, each on a stream of its own. */
enum { THREADS = 4, LAUNCHES = 2000 };

struct reader {
  int begun, ended;
};

static void *read_weights(void *argument) {
  struct reader *reader = argument;
  pinlane_stream *stream = NULL;
  pinlane_device_buffer *out = NULL;
  if (pinlane_stream_create(rig.device, NULL, &stream) != PINLANE_STATUS_OK ||
      pinlane_device_buffer_alloc(rig.device, BYTES, &out) != PINLANE_STATUS_OK) {
    abort();
  }
  const pinlane_use uses[] = {of_device(rig.gpu, PINLANE_ACCESS_READ),
                              of_host(rig.buffer, PINLANE_ACCESS_READ),
                              of_device(out, PINLANE_ACCESS_WRITE)};
  for (int i = 0; i < LAUNCHES; i++) {
    pinlane_foreign *work = NULL;
    reader->begun += pinlane_foreign_begin(stream, uses, 3, &work) == PINLANE_STATUS_OK;
    reader->ended += pinlane_foreign_end(work, NULL) == PINLANE_STATUS_OK;
  }
  pinlane_stream_synchronize(stream);
  pinlane_device_buffer_free(out);
  pinlane_stream_free(stream);
  return NULL;
}

static void c_rule_14_readers_share_weights(void) {
  struct reader readers[THREADS] = {{0, 0}};
  pthread_t ids[THREADS];
  for (int i = 0; i < THREADS; i++) {
    if (pthread_create(&ids[i], NULL, read_weights, &readers[i]) != 0) {
      abort();
    }
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(ids[i], NULL);
    EXPECT(readers[i].begun == LAUNCHES && readers[i].ended == LAUNCHES);
  }
}

/* On a lazy machine a wait runs the work that it needs, and other streams advance only by chance.
 * So in some rounds the first reader is still pending after a wait for the second one, unless the
 * second waits for the first. */
static void c_rule_14_readers_overlap_and_a_writer_waits_for_both(void) {
  pinlane_stream *second = NULL, *third = NULL;
  OK(pinlane_stream_create(rig.device, NULL, &second));
  OK(pinlane_stream_create(rig.device, NULL, &third));
  const pinlane_use reads[] = {of_device(rig.gpu, PINLANE_ACCESS_READ),
                               of_host(rig.buffer, PINLANE_ACCESS_READ)};
  const pinlane_use writes[] = {of_device(rig.gpu, PINLANE_ACCESS_WRITE),
                                of_host(rig.buffer, PINLANE_ACCESS_WRITE)};
  int overlapped = 0;
  for (int round = 0; round < 64; round++) {
    pinlane_ticket *const one = launch(rig.stream, reads, 2);
    pinlane_ticket *const two = launch(second, reads, 2);
    OK(pinlane_ticket_wait(two));
    overlapped += !is_done(one);
    pinlane_ticket *const again = launch(second, reads, 2);
    pinlane_ticket *const written = launch(third, writes, 2);
    OK(pinlane_ticket_wait(written));
    EXPECT(is_done(one) && is_done(again));
    pinlane_ticket *const last = launch(third, writes, 1);
    pinlane_ticket *const read = launch(second, reads, 1);
    OK(pinlane_ticket_wait(read));
    EXPECT(is_done(last));
    pinlane_ticket *const tickets[] = {one, two, again, written, last, read};
    for (size_t i = 0; i < sizeof tickets / sizeof *tickets; i++) {
      OK(pinlane_ticket_free(tickets[i]));
    }
  }
  EXPECT(overlapped > 0);
  OK(pinlane_stream_free(second));
  OK(pinlane_stream_free(third));
}

/* A buffer that is freed while its work is begun is released when the work has ended. */
static void frees(void) {
  pinlane_buffer *buffer = NULL;
  pinlane_foreign *work = NULL;
  OK(pinlane_buffer_alloc(rig.pool, 1 << 16, &buffer));
  const pinlane_use use = of_host(buffer, PINLANE_ACCESS_READ);
  pinlane_pool_stats before = PINLANE_POOL_STATS_INIT, after = before;
  OK(pinlane_pool_get_stats(rig.pool, &before));
  OK(pinlane_foreign_begin(rig.stream, &use, 1, &work));
  OK(pinlane_buffer_free(buffer));
  OK(pinlane_stream_busy(rig.stream, 1000, NULL));
  OK(pinlane_pool_get_stats(rig.pool, &after));
  EXPECT(after.live_bytes == before.live_bytes);
  OK(pinlane_foreign_end(work, NULL));
  OK(pinlane_pool_get_stats(rig.pool, &after));
  EXPECT(after.live_bytes == before.live_bytes - (1 << 16));
  EXPECT(after.in_flight_bytes == before.in_flight_bytes + (1 << 16));
}

int main(void) {
  set_up(BYTES, BYTES);
  refusals();
  borrows();
  c_rule_14_readers_share_weights();
  c_rule_14_readers_overlap_and_a_writer_waits_for_both();
  frees();
  tear_down();
  return verdict("work of the program's own");
}
