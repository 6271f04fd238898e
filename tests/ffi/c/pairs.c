/* Pairs of page-locked and device memory, copied repeatedly in both directions. C11, on a lazy
 * emulated device: copies run only when the program waits. */

#include "copy_rig.h"

_Static_assert(sizeof(pinlane_pair) == 48, "pinlane_pair");
MEMBER(pinlane_pair, buffer, 0);
MEMBER(pinlane_pair, buffer_offset, 8);
MEMBER(pinlane_pair, device_buffer, 16);
MEMBER(pinlane_pair, device_offset, 24);
MEMBER(pinlane_pair, bytes, 32);
MEMBER(pinlane_pair, pinned, 40);

enum { PAIRS = 500, EACH = 96 };
static pinlane_buffer *buffer2;
static pinlane_stream *stream2;

/* Each fifth pair is empty. They lie back to front on the device, in two buffers on both sides. */
static size_t size_of(size_t i) { return i % 5 == 4 ? 0 : EACH - i % 7; }

static void fill_pairs(pinlane_pair *pairs) {
  memset(pairs, 0, PAIRS * sizeof *pairs);
  for (size_t i = 0; i < PAIRS; i++) {
    pairs[i].buffer = i % 2 == 0 ? rig.buffer : buffer2;
    pairs[i].buffer_offset = i * EACH;
    pairs[i].device_buffer = i % 3 == 0 ? rig.gpu : rig.gpu2;
    pairs[i].device_offset = (PAIRS - 1 - i) * EACH;
    pairs[i].bytes = size_of(i);
  }
}

static char value(size_t at, int step) { return (char)(at * 7 + at / 96 + (size_t)step * 31); }

static void write_both(int step) {
  pinlane_buffer *const buffers[] = {rig.buffer, buffer2};
  for (size_t which = 0; which < 2; which++) {
    void *data = NULL;
    OK(pinlane_buffer_write(buffers[which], &data));
    for (size_t at = 0; data != NULL && at < PAIRS * EACH; at++) {
      ((char *)data)[at] = value(at, step);
    }
  }
}

/* Whether each pair's host side has what `write_both` wrote, with 1 elsewhere. */
static int are_back(int step) {
  const void *data[2] = {NULL, NULL};
  OK(pinlane_buffer_read(rig.buffer, &data[0]));
  OK(pinlane_buffer_read(buffer2, &data[1]));
  int right = data[0] != NULL && data[1] != NULL;
  for (size_t i = 0; right && i < PAIRS; i++) {
    for (size_t at = 0; at < EACH; at++) {
      const size_t place = i * EACH + at;
      right &= ((const char *)data[i % 2])[place] == (at < size_of(i) ? value(place, step) : 1);
    }
  }
  return right;
}

static void clear_both(void) {
  void *data = NULL;
  OK(pinlane_buffer_write(rig.buffer, &data));
  memset(data, 1, PAIRS * EACH);
  OK(pinlane_buffer_write(buffer2, &data));
  memset(data, 1, PAIRS * EACH);
}

/* The bytes of page-locked memory that the machine has allocated. */
static uint64_t page_locked(void) {
  pinlane_emulator *machine = NULL;
  pinlane_emulator_usage usage = PINLANE_EMULATOR_USAGE_INIT;
  OK(pinlane_device_emulator(rig.device, &machine));
  OK(pinlane_emulator_get_usage(machine, &usage));
  OK(pinlane_emulator_free(machine));
  return usage.host_bytes;
}

static void steps(int32_t route) {
  static pinlane_pair array[PAIRS];
  pinlane_batch_options options = PINLANE_BATCH_OPTIONS_INIT;
  pinlane_pairs *pairs = NULL;
  options.route = route;
  fill_pairs(array);
  OK(pinlane_pairs_create(array, PAIRS, &options, &pairs));
  memset(array, -1, sizeof array); /* the list has what it needs */
  uint64_t after_first = 0;
  for (int step = 0; step < 4; step++) {
    pinlane_ticket *ticket = NULL;
    write_both(step);
    OK(pinlane_upload_pairs(rig.stream, pairs, NULL));
    /* Between the copies the buffers are used as usual. */
    clear_both();
    OK(pinlane_device_buffer_upload_slice(rig.stream, rig.host, rig.gpu, PAIRS * EACH, 64, NULL));
    OK(pinlane_download_pairs(step % 2 == 0 ? rig.stream : stream2, pairs, &ticket));
    EXPECT(are_back(step));
    OK(pinlane_ticket_wait(ticket));
    OK(pinlane_ticket_free(ticket));
    after_first = step == 0 ? page_locked() : after_first;
  }
  EXPECT(page_locked() == after_first);
  /* Freed in the middle of a copy. */
  write_both(9);
  OK(pinlane_upload_pairs(rig.stream, pairs, NULL));
  clear_both();
  OK(pinlane_download_pairs(rig.stream, pairs, NULL));
  OK(pinlane_pairs_free(pairs));
  EXPECT(are_back(9));
  REFUSED(INVALID_HANDLE, pinlane_upload_pairs(rig.stream, pairs, NULL));
  REFUSED(INVALID_HANDLE, pinlane_pairs_free(pairs));
}

static void what_is_written_must_not_overlap(void) {
  pinlane_pair two[2] = {
      {.buffer = rig.buffer, .device_buffer = rig.gpu, .bytes = 64},
      {.buffer = rig.buffer, .device_buffer = rig.gpu, .device_offset = 64, .bytes = 64}};
  pinlane_pairs *pairs = NULL;
  pinlane_ticket *ticket = NULL;
  OK(pinlane_pairs_create(two, 2, NULL, &pairs));
  OK(pinlane_upload_pairs(rig.stream, pairs, NULL)); /* one source for two places */
  REFUSED(INVALID_VALUE, pinlane_download_pairs(rig.stream, pairs, &ticket));
  REFUSED(INVALID_VALUE, pinlane_download_pairs(rig.stream, pairs, &ticket));
  OK(pinlane_upload_pairs(rig.stream, pairs, NULL));
  OK(pinlane_pairs_free(pairs));

  two[1].buffer_offset = 64;
  two[1].device_offset = 63;
  OK(pinlane_pairs_create(two, 2, NULL, &pairs));
  REFUSED(INVALID_VALUE, pinlane_upload_pairs(rig.stream, pairs, &ticket));
  OK(pinlane_download_pairs(rig.stream, pairs, NULL));
  OK(pinlane_pairs_free(pairs));

  /* Two buffers of one memory. */
  pinlane_device_buffer *lent = NULL;
  OK(pinlane_device_buffer_borrow(rig.device, rig.raw, LARGE, &lent));
  two[0] = (pinlane_pair){.buffer = rig.buffer, .device_buffer = rig.lent, .bytes = 64};
  two[1] = (pinlane_pair){
      .buffer = buffer2, .device_buffer = lent, .device_offset = 63, .bytes = 64};
  OK(pinlane_pairs_create(two, 2, NULL, &pairs));
  REFUSED(INVALID_VALUE, pinlane_upload_pairs(rig.stream, pairs, &ticket));
  OK(pinlane_pairs_free(pairs));
  OK(pinlane_device_buffer_free(lent));
  EXPECT(ticket == NULL);
}

static void buffers_that_are_gone_or_in_use(void) {
  pinlane_buffer *host = NULL;
  pinlane_device_buffer *gpu = NULL;
  pinlane_pairs *pairs = NULL;
  pinlane_ticket *ticket = NULL;
  OK(pinlane_buffer_alloc(rig.pool, 64, &host));
  OK(pinlane_device_buffer_alloc(rig.device, 64, &gpu));
  pinlane_pair one = {.buffer = host, .device_buffer = gpu, .bytes = 64};
  OK(pinlane_pairs_create(&one, 1, NULL, &pairs));
  OK(pinlane_upload_pairs(rig.stream, pairs, NULL));

  /* The program's own work uses the device buffer. */
  const pinlane_use use = {.device_buffer = gpu, .access = PINLANE_ACCESS_READ};
  pinlane_foreign *foreign = NULL;
  OK(pinlane_foreign_begin(rig.stream, &use, 1, &foreign));
  REFUSED(BUSY, pinlane_upload_pairs(rig.stream, pairs, &ticket));
  OK(pinlane_download_pairs(rig.stream, pairs, NULL));
  OK(pinlane_foreign_end(foreign, NULL));
  OK(pinlane_upload_pairs(rig.stream, pairs, NULL));

  REFUSED(WRONG_DEVICE, pinlane_upload_pairs(rig.other_stream, pairs, &ticket));
  REFUSED(WRONG_DEVICE, pinlane_download_pairs(rig.other_stream, pairs, &ticket));
  OK(pinlane_upload_pairs(rig.stream, pairs, NULL));

  /* Another buffer has the slot of the freed one, but not its handle. */
  OK(pinlane_device_buffer_free(gpu));
  REFUSED(INVALID_HANDLE, pinlane_upload_pairs(rig.stream, pairs, &ticket));
  OK(pinlane_device_buffer_alloc(rig.device, 64, &gpu));
  REFUSED(INVALID_HANDLE, pinlane_upload_pairs(rig.stream, pairs, &ticket));
  REFUSED(INVALID_HANDLE, pinlane_download_pairs(rig.stream, pairs, &ticket));
  OK(pinlane_pairs_free(pairs));
  one.device_buffer = gpu;
  OK(pinlane_pairs_create(&one, 1, NULL, &pairs));
  OK(pinlane_buffer_free(host));
  REFUSED(INVALID_HANDLE, pinlane_upload_pairs(rig.stream, pairs, &ticket));
  OK(pinlane_pairs_free(pairs));
  pinlane_pairs *none = NULL;
  REFUSED(INVALID_HANDLE, pinlane_pairs_create(&one, 1, NULL, &none));
  OK(pinlane_device_buffer_free(gpu));
  EXPECT(ticket == NULL && none == NULL);
}

static void bad_pairs(void) {
  const pinlane_pair good = {.buffer = rig.buffer, .device_buffer = rig.gpu, .bytes = 64};
  pinlane_pairs *pairs = NULL;
  pinlane_ticket *ticket = NULL;
  REFUSED(INVALID_VALUE, pinlane_pairs_create(&good, 1, NULL, NULL));
  REFUSED(INVALID_VALUE, pinlane_pairs_create(&good, 1, NULL, (void *)((char *)&pairs + 1)));
  REFUSED(INVALID_VALUE, pinlane_pairs_create(NULL, 1, NULL, &pairs));
  REFUSED(INVALID_VALUE, pinlane_pairs_create(&good, SIZE_MAX, NULL, &pairs));
  pinlane_batch_options options = PINLANE_BATCH_OPTIONS_INIT;
  options.route = 9;
  REFUSED(INVALID_VALUE, pinlane_pairs_create(&good, 1, &options, &pairs));
  options.route = PINLANE_ROUTE_COPIES;
  options.size--;
  REFUSED(INVALID_VALUE, pinlane_pairs_create(&good, 1, &options, &pairs));

  pinlane_pair bad = good;
  bad.pinned = rig.host; /* named twice */
  REFUSED(INVALID_VALUE, pinlane_pairs_create(&bad, 1, NULL, &pairs));
  bad = good;
  bad.buffer = NULL;
  REFUSED(INVALID_VALUE, pinlane_pairs_create(&bad, 1, NULL, &pairs));
  EXPECT(strstr(pinlane_last_error(), "pair 0") != NULL);
  bad = good;
  bad.device_buffer = NULL;
  bad.bytes = 0;
  REFUSED(INVALID_VALUE, pinlane_pairs_create(&bad, 1, NULL, &pairs));
  bad = good;
  bad.buffer = (void *)rig.gpu;
  REFUSED(INVALID_HANDLE, pinlane_pairs_create(&bad, 1, NULL, &pairs));
  bad = good;
  bad.buffer_offset = PINNED - 63;
  REFUSED(OUT_OF_RANGE, pinlane_pairs_create(&bad, 1, NULL, &pairs));
  bad = good;
  bad.device_offset = SIZE_MAX;
  REFUSED(OUT_OF_RANGE, pinlane_pairs_create(&bad, 1, NULL, &pairs));
  EXPECT(pairs == NULL);

  OK(pinlane_pairs_create(NULL, 0, NULL, &pairs));
  OK(pinlane_upload_pairs(rig.stream, pairs, NULL));
  OK(pinlane_download_pairs(rig.stream, pairs, &ticket));
  OK(pinlane_ticket_free(ticket));
  ticket = NULL;
  REFUSED(INVALID_HANDLE, pinlane_upload_pairs(NULL, pairs, &ticket));
  REFUSED(INVALID_HANDLE, pinlane_download_pairs(rig.stream, NULL, &ticket));
  REFUSED(INVALID_HANDLE, pinlane_upload_pairs(rig.stream, (void *)rig.gpu, &ticket));
  REFUSED(INVALID_VALUE,
          pinlane_upload_pairs(rig.stream, pairs, (void *)((char *)&ticket + 1)));
  OK(pinlane_pairs_free(pairs));
  OK(pinlane_pairs_free(NULL));

  /* CUDA has no batch call on the legacy default stream. */
  pinlane_stream *legacy = NULL;
  OK(pinlane_stream_borrow(rig.device, NULL, &legacy));
  options = (pinlane_batch_options)PINLANE_BATCH_OPTIONS_INIT;
  options.route = PINLANE_ROUTE_BATCH_CALL;
  OK(pinlane_pairs_create(&good, 1, &options, &pairs));
  REFUSED(UNSUPPORTED, pinlane_upload_pairs(legacy, pairs, &ticket));
  OK(pinlane_upload_pairs(rig.stream, pairs, NULL));
  OK(pinlane_pairs_free(pairs));
  OK(pinlane_stream_free(legacy));
  EXPECT(ticket == NULL);
}

int main(void) {
  set_up_copies();
  OK(pinlane_buffer_alloc_zeroed(rig.pool, PINNED, &buffer2));
  OK(pinlane_stream_create(rig.device, NULL, &stream2));
  steps(PINLANE_ROUTE_AUTOMATIC);
  steps(PINLANE_ROUTE_COPIES);
  steps(PINLANE_ROUTE_BATCH_CALL);
  steps(PINLANE_ROUTE_KERNEL);
  what_is_written_must_not_overlap();
  buffers_that_are_gone_or_in_use();
  bad_pairs();
  OK(pinlane_stream_free(stream2));
  OK(pinlane_buffer_free(buffer2));
  tear_down_copies();
  return verdict("pairs");
}
