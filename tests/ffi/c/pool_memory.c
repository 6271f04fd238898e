/* Memory of a pool that is known by its address only: copies that return at once, and frees during
 * these copies. C11, on a lazy emulated device: work runs only when the program waits. */

#include "copy_rig.h"

#include <stdint.h>

static void *allocate(pinlane_pool *pool, size_t bytes) {
  void *memory = NULL;
  OK(pinlane_pool_allocate(pool, bytes, 1, &memory));
  return memory;
}

static pinlane_pool_stats stats(void) {
  pinlane_pool_stats stats = PINLANE_POOL_STATS_INIT;
  OK(pinlane_pool_get_stats(rig.pool, &stats));
  return stats;
}

static int is_done(const pinlane_ticket *ticket) {
  int32_t done = -1;
  OK(pinlane_ticket_is_done(ticket, &done));
  return done;
}

static void wait_and_free(pinlane_ticket *ticket) {
  OK(pinlane_ticket_wait(ticket));
  OK(pinlane_ticket_free(ticket));
}

/* Every form, at many alignments and lengths, also small ones. None of them waits: otherwise
 * nothing would ever be pending. (A query may make progress on a lazy machine, so the work is not
 * always pending.) */
static void copies_return_at_once(void) {
  char *const memory = allocate(rig.pool, LARGE), *const back = allocate(rig.pool, LARGE);
  memcpy(memory, rig.host, LARGE);
  const size_t lengths[] = {1, 64, 100, 4097, 65536, 65537, 1 << 20};
  int pending[sizeof lengths / sizeof *lengths][2] = {{0, 0}};
  for (size_t at = 0; at < 64; at += 7) {
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
      const size_t bytes = lengths[i], offset = 64 - at;
      pinlane_stream *const stream = rig.stream;
      pinlane_ticket *up = NULL, *down = NULL;
      memset(back, 0, LARGE);
      OK(pinlane_upload_pinned(stream, memory + at, rig.raw + offset, bytes, &up));
      OK(pinlane_download_pinned(stream, rig.raw + offset, back + offset, bytes, &down));
      pending[i][0] += !is_done(down);
      wait_and_free(down);
      EXPECT(memcmp(back + offset, rig.host + at, bytes) == 0 && back[offset + bytes] == 0);
      wait_and_free(up);

      memset(back, 0, LARGE);
      OK(pinlane_device_buffer_upload_pinned(stream, memory + at, rig.gpu, offset, bytes, &up));
      OK(pinlane_device_buffer_download_pinned(stream, rig.gpu, offset, back + at, bytes, &down));
      pending[i][1] += !is_done(up);
      wait_and_free(down);
      EXPECT(memcmp(back + at, rig.host + at, bytes) == 0 && back[at + bytes] == 0);
      wait_and_free(up);
    }
  }
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    EXPECT(pending[i][0] > 0 && pending[i][1] > 0);
  }
  OK(pinlane_upload_pinned(rig.stream, NULL, NULL, 0, NULL));
  OK(pinlane_device_buffer_download_pinned(rig.stream, rig.gpu, 7, NULL, 0, NULL));
  OK(pinlane_pool_deallocate(rig.pool, memory));
  OK(pinlane_pool_deallocate(rig.pool, back));
}

/* Copies of one piece of memory on several streams are ordered. */
static void copies_are_ordered(void) {
  enum { EACH = 1 << 16 };
  pinlane_stream *other = NULL;
  pinlane_ticket *last = NULL;
  char *const memory = allocate(rig.pool, EACH);
  OK(pinlane_stream_create(rig.device, NULL, &other));
  memset(memory, 5, EACH);
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu2, 0, EACH, "\7", 1, NULL));
  OK(pinlane_stream_busy(rig.stream, 1000, NULL));
  OK(pinlane_device_buffer_upload_pinned(rig.stream, memory, rig.gpu, 0, EACH, NULL));
  OK(pinlane_device_buffer_download_pinned(other, rig.gpu2, 0, memory, EACH, NULL));
  OK(pinlane_device_buffer_upload_pinned(rig.stream, memory, rig.gpu2, EACH, EACH, &last));
  wait_and_free(last);
  OK(pinlane_device_buffer_download_slice(rig.stream, rig.gpu, 0, rig.back, EACH));
  EXPECT(rig.back[0] == 5 && rig.back[EACH - 1] == 5);
  OK(pinlane_device_buffer_download_slice(rig.stream, rig.gpu2, EACH, rig.back, EACH));
  EXPECT(rig.back[0] == 7 && rig.back[EACH - 1] == 7);
  OK(pinlane_pool_deallocate(rig.pool, memory));
  OK(pinlane_stream_free(other));
}

/* Freed right after the call, the memory is reused only when the copy is complete. */
static void frees_in_flight(void) {
  enum { EACH = 1 << 20, ROUNDS = 8 };
  pinlane_pool_options options = PINLANE_POOL_OPTIONS_INIT;
  options.max_bytes = 2 * EACH;
  pinlane_pool *const all = rig.pool;
  OK(pinlane_pool_create(rig.device, &options, &rig.pool));
  for (int round = 0; round < ROUNDS; round++) {
    char *const memory = allocate(rig.pool, EACH);
    memset(memory, round, EACH);
    OK(pinlane_upload_pinned(rig.stream, memory + 1, rig.raw + round, EACH - 1, NULL));
    OK(pinlane_pool_deallocate(rig.pool, memory));
    EXPECT(stats().live_bytes == 0 && stats().in_flight_bytes >= EACH);
  }
  EXPECT(stats().peak_bytes <= 2 * EACH && stats().waits > 0);
  OK(pinlane_download_slice(rig.stream, rig.raw, rig.back, EACH));
  for (int i = 0; i < ROUNDS; i++) {
    EXPECT(rig.back[i] == i);
  }
  EXPECT(rig.back[EACH - 1] == ROUNDS - 1);

  /* Memory that the device still writes is not reused: the next owner finds only its own bytes. */
  char *memory = allocate(rig.pool, 2 * EACH);
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, 2 * EACH, "\11", 1, NULL));
  OK(pinlane_device_buffer_download_pinned(rig.stream, rig.gpu, 0, memory, 2 * EACH, NULL));
  OK(pinlane_pool_deallocate(rig.pool, memory));
  memory = allocate(rig.pool, 2 * EACH); /* waits */
  memset(memory, 1, 2 * EACH);
  OK(pinlane_stream_synchronize(rig.stream));
  EXPECT(memory[0] == 1 && memory[2 * EACH - 1] == 1);
  OK(pinlane_pool_deallocate(rig.pool, memory));
  OK(pinlane_pool_free(rig.pool));
  rig.pool = all;
}

/* A pointer into a buffer: the buffer knows of the copies. */
static void buffers(void) {
  void *data = NULL;
  const void *read = NULL;
  OK(pinlane_buffer_write(rig.buffer, &data));
  memset(data, 3, PINNED);
  OK(pinlane_device_buffer_upload_pinned(rig.stream, data, rig.gpu, 0, PINNED, NULL));
  REFUSED(NOT_READY, pinlane_buffer_try_write(rig.buffer, &data));
  OK(pinlane_buffer_try_read(rig.buffer, &read));
  OK(pinlane_buffer_write(rig.buffer, &data)); /* waits */
  memset(data, 4, PINNED);
  OK(pinlane_device_buffer_download_pinned(rig.stream, rig.gpu, 0, data, PINNED, NULL));
  REFUSED(NOT_READY, pinlane_buffer_try_read(rig.buffer, &read));
  OK(pinlane_buffer_read(rig.buffer, &read));
  EXPECT(((const char *)read)[0] == 3 && ((const char *)read)[PINNED - 1] == 3);

  /* After a copy as a slice the memory is the program's again when the call returns. */
  OK(pinlane_buffer_write(rig.buffer, &data));
  memset(data, 6, PINNED);
  OK(pinlane_device_buffer_upload_slice(rig.stream, data, rig.gpu, 0, PINNED, NULL));
  memset(data, 0, PINNED);
  OK(pinlane_device_buffer_download_slice(rig.stream, rig.gpu, 0, data, PINNED));
  EXPECT(((const char *)data)[0] == 6 && ((const char *)data)[PINNED - 1] == 6);
}

/* Slices of a pool's memory that are larger than a small copy, and slices that span two
 * allocations. */
static void slices(void) {
  enum { EACH = 128 << 10, COUNT = 16 };
  char *blocks[COUNT];
  for (int i = 0; i < COUNT; i++) {
    blocks[i] = allocate(rig.pool, EACH);
    memset(blocks[i], i, EACH);
  }
  for (size_t at = 0; at < 64; at++) {
    char *const source = blocks[0] + at, *const target = blocks[1] + 64 - at;
    const size_t bytes = EACH - 64 - at;
    memset(source, (int)at + 1, bytes);
    OK(pinlane_upload_slice(rig.stream, source, rig.raw + at, bytes, NULL));
    memset(source, 0, bytes);
    OK(pinlane_download_slice(rig.stream, rig.raw + at, target, bytes));
    EXPECT(target[0] == (char)(at + 1) && target[bytes - 1] == (char)(at + 1));
  }
  int pairs = 0;
  for (int i = 0; i < COUNT; i++) {
    for (int j = 0; j < COUNT; j++) {
      if (blocks[i] + EACH != blocks[j]) {
        continue;
      }
      pairs++;
      memset(blocks[i], 20 + i, EACH);
      memset(blocks[j], 40 + j, EACH);
      OK(pinlane_upload_slice(rig.stream, blocks[i] + 1, rig.raw, 2 * EACH - 1, NULL));
      OK(pinlane_download_slice(rig.stream, rig.raw, rig.back, 2 * EACH - 1));
      EXPECT(memcmp(rig.back, blocks[i] + 1, 2 * EACH - 1) == 0);
      pinlane_ticket *ticket = NULL;
      REFUSED(INVALID_VALUE, pinlane_upload_pinned(rig.stream, blocks[i] + 1, rig.raw,
                                                   2 * EACH - 1, &ticket));
      OK(pinlane_upload_pinned(rig.stream, blocks[i] + 1, rig.raw, EACH - 1, NULL));
    }
  }
  EXPECT(pairs > 0);
  OK(pinlane_stream_synchronize(rig.stream));
  for (int i = 0; i < COUNT; i++) {
    OK(pinlane_pool_deallocate(rig.pool, blocks[i]));
  }
}

/* Page-locked memory of one device's pool is page-locked for all devices of the machine. */
static void other_pools_and_machines(void) {
  pinlane_pool *other = NULL, *elsewhere = NULL;
  pinlane_device *machine = NULL;
  OK(pinlane_pool_create(rig.other_device, NULL, &other));
  OK(pinlane_emulator_create(NULL, &machine, 1));
  OK(pinlane_pool_create(machine, NULL, &elsewhere));
  char *const memory = allocate(other, LARGE), *const foreign = allocate(elsewhere, LARGE);
  memcpy(memory, rig.host, LARGE);
  memcpy(foreign, rig.host, LARGE);
  pinlane_ticket *ticket = NULL;
  OK(pinlane_upload_pinned(rig.stream, memory, rig.raw, LARGE, &ticket));
  OK(pinlane_pool_deallocate(other, memory));
  wait_and_free(ticket);
  OK(pinlane_download_slice(rig.stream, rig.raw, rig.back, LARGE));
  EXPECT(memcmp(rig.back, rig.host, LARGE) == 0);
  REFUSED(INVALID_VALUE, pinlane_upload_pinned(rig.stream, foreign, rig.raw, LARGE, NULL));
  memset(rig.back, 0, LARGE);
  OK(pinlane_upload_slice(rig.stream, foreign, rig.raw, LARGE, NULL));
  OK(pinlane_download_slice(rig.stream, rig.raw, rig.back, LARGE));
  EXPECT(memcmp(rig.back, rig.host, LARGE) == 0);
  OK(pinlane_pool_deallocate(elsewhere, foreign));
  OK(pinlane_pool_free(other));
  OK(pinlane_pool_free(elsewhere));
  OK(pinlane_device_free(machine));
}

/* The kinds of lists that memory of a pool may be part of. */
enum form { BATCH, PAIRS, ROWS, FORMS };
static const char *const names[FORMS] = {"copy 1", "pair 1", "layer 0"};

/* Copies between memory of a pool and `rig.gpu` from `at` on. A list of pairs goes at once. */
static pinlane_status in_list(enum form form, int up, void *memory, size_t at, size_t bytes,
                              pinlane_ticket **ticket) {
  pinlane_stream *const s = rig.stream;
  if (form == BATCH) {
    const pinlane_copy copies[] = {
        {.bytes = 0},
        {.pinned = memory, .bytes = bytes, .device_buffer = rig.gpu, .device_offset = at}};
    return up ? pinlane_upload_batch(s, copies, 2, NULL, ticket)
              : pinlane_download_batch(s, copies, 2, NULL, ticket);
  }
  if (form == ROWS) {
    const uint32_t first = 0;
    pinlane_indices indices = PINLANE_INDICES_INIT;
    indices.numbers = &first;
    indices.count = 1;
    const pinlane_layer layer = {.pinned = memory,
                                 .src_bytes = bytes,
                                 .dst_bytes = bytes,
                                 .device_buffer = rig.gpu,
                                 .device_offset = at};
    return up ? pinlane_upload_rows(s, &layer, &indices, ticket)
              : pinlane_download_rows(s, &layer, &indices, ticket);
  }
  const pinlane_pair pairs[] = {
      {.device_buffer = rig.gpu},
      {.pinned = memory, .bytes = bytes, .device_buffer = rig.gpu, .device_offset = at}};
  pinlane_pairs *list = NULL;
  pinlane_status status = pinlane_pairs_create(pairs, 2, NULL, &list);
  if (status == PINLANE_STATUS_OK) {
    status = up ? pinlane_upload_pairs(s, list, ticket) : pinlane_download_pairs(s, list, ticket);
    OK(pinlane_pairs_free(list));
  }
  return status;
}

/* Memory in a list is copied like memory alone: directly, in both directions, and without a
 * wait. */
static void lists_return_at_once(enum form form) {
  char *const memory = allocate(rig.pool, LARGE), *const back = allocate(rig.pool, LARGE);
  memcpy(memory, rig.host, LARGE);
  const size_t lengths[] = {1, 100, 4097, 65537, 1 << 20};
  int pending[2] = {0, 0};
  for (size_t at = 0; at < 64; at += 7) {
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
      const size_t bytes = lengths[i];
      pinlane_ticket *up = NULL, *down = NULL;
      memset(back, 0, LARGE);
      OK(in_list(form, 1, memory + at, 64 - at, bytes, &up));
      pending[0] += !is_done(up);
      OK(in_list(form, 0, back + at, 64 - at, bytes, &down));
      pending[1] += !is_done(down);
      wait_and_free(down);
      EXPECT(memcmp(back + at, rig.host + at, bytes) == 0 && back[at + bytes] == 0);
      wait_and_free(up);
    }
  }
  EXPECT(pending[0] > 0 && pending[1] > 0);
  OK(pinlane_pool_deallocate(rig.pool, memory));
  OK(pinlane_pool_deallocate(rig.pool, back));
}

/* Freed right after the call, the memory is reused only when the copy is complete. */
static void lists_that_lose_their_memory(enum form form) {
  enum { EACH = 1 << 20, ROUNDS = 8 };
  pinlane_pool_options options = PINLANE_POOL_OPTIONS_INIT;
  options.max_bytes = 2 * EACH;
  pinlane_pool *const all = rig.pool;
  OK(pinlane_pool_create(rig.device, &options, &rig.pool));
  for (int round = 0; round < ROUNDS; round++) {
    char *const memory = allocate(rig.pool, EACH);
    memset(memory, round + 1, EACH);
    OK(in_list(form, 1, memory + 1, (size_t)round, EACH - 1, NULL));
    OK(pinlane_pool_deallocate(rig.pool, memory));
    EXPECT(stats().live_bytes == 0 && stats().in_flight_bytes >= EACH);
  }
  EXPECT(stats().peak_bytes <= 2 * EACH && stats().waits > 0);
  OK(pinlane_device_buffer_download_slice(rig.stream, rig.gpu, 0, rig.back, EACH));
  for (int i = 0; i < ROUNDS; i++) {
    EXPECT(rig.back[i] == i + 1);
  }
  EXPECT(rig.back[EACH - 1] == ROUNDS);

  char *memory = allocate(rig.pool, 2 * EACH);
  OK(in_list(form, 0, memory, 0, 2 * EACH, NULL));
  OK(pinlane_pool_deallocate(rig.pool, memory));
  memory = allocate(rig.pool, 2 * EACH); /* waits */
  memset(memory, 77, 2 * EACH);
  OK(pinlane_stream_synchronize(rig.stream));
  EXPECT(memory[0] == 77 && memory[2 * EACH - 1] == 77);
  OK(pinlane_pool_deallocate(rig.pool, memory));
  OK(pinlane_pool_free(rig.pool));
  rig.pool = all;
}

/* Refused items, by their numbers. */
static void lists_of_other_memory(enum form form) {
  pinlane_pool *elsewhere = NULL;
  pinlane_device *machine = NULL;
  pinlane_ticket *ticket = NULL, **t = &ticket;
  OK(pinlane_emulator_create(NULL, &machine, 1));
  OK(pinlane_pool_create(machine, NULL, &elsewhere));
  char *const memory = allocate(rig.pool, 4096), *const foreign = allocate(elsewhere, 64);
  for (int up = 0; up < 2; up++) {
    EXPECT(in_list(form, up, rig.back, 0, 8, t) == PINLANE_STATUS_INVALID_VALUE); /* pageable */
    EXPECT(strstr(pinlane_last_error(), names[form]) != NULL);
    EXPECT(strstr(pinlane_last_error(), "block of a pool") != NULL);
    EXPECT(in_list(form, up, &ticket, 0, 8, t) == PINLANE_STATUS_INVALID_VALUE);
    /* Not in one block. */
    EXPECT(in_list(form, up, memory + 1, 0, 4096, t) == PINLANE_STATUS_INVALID_VALUE);
    EXPECT(in_list(form, up, foreign, 0, 8, t) == PINLANE_STATUS_INVALID_VALUE);
    EXPECT(strstr(pinlane_last_error(), names[form]) != NULL);
    EXPECT(in_list(form, up, NULL, 0, 8, t) == PINLANE_STATUS_INVALID_VALUE);
    OK(in_list(form, up, NULL, 0, 0, NULL));
    OK(in_list(form, up, memory, 9, 0, NULL));
  }
  EXPECT(ticket == NULL);
  OK(pinlane_pool_deallocate(rig.pool, memory));
  OK(pinlane_pool_deallocate(elsewhere, foreign));
  OK(pinlane_pool_free(elsewhere));
  OK(pinlane_device_free(machine));
}

static void lists_that_name_memory_twice(void) {
  void *data = NULL;
  pinlane_ticket *ticket = NULL, **t = &ticket;
  pinlane_stream *const s = rig.stream;
  OK(pinlane_buffer_write(rig.buffer, &data));
  pinlane_copy twice = {.pinned = data, .buffer = rig.buffer, .bytes = 8, .device_buffer = rig.gpu};
  REFUSED(INVALID_VALUE, pinlane_upload_batch(s, &twice, 1, NULL, t));
  REFUSED(INVALID_VALUE, pinlane_download_batch(s, &twice, 1, NULL, t));
  twice.buffer = NULL;
  twice.src = twice.dst = data;
  REFUSED(INVALID_VALUE, pinlane_upload_batch(s, &twice, 1, NULL, t));
  REFUSED(INVALID_VALUE, pinlane_download_batch(s, &twice, 1, NULL, t));

  /* One buffer, by its handle and by its address: destinations must not overlap. */
  pinlane_copy two[] = {
      {.buffer = rig.buffer, .bytes = 64, .device_buffer = rig.gpu},
      {.pinned = (char *)data + 63, .bytes = 64, .device_buffer = rig.gpu, .device_offset = 64}};
  REFUSED(INVALID_VALUE, pinlane_download_batch(s, two, 2, NULL, t));
  EXPECT(ticket == NULL);
  memset(data, 8, PINNED);
  OK(pinlane_upload_batch(s, two, 2, NULL, NULL));
  two[1].pinned = (char *)data + 64;
  OK(pinlane_device_buffer_fill(s, rig.gpu, 0, 64, "\1", 1, NULL));
  OK(pinlane_download_batch(s, two, 2, NULL, NULL));
  const void *read = NULL;
  REFUSED(NOT_READY, pinlane_buffer_try_read(rig.buffer, &read));
  OK(pinlane_buffer_read(rig.buffer, &read)); /* the buffer knows of both */
  EXPECT(((const char *)read)[63] == 1 && ((const char *)read)[64] == 8);
  EXPECT(((const char *)read)[127] == 8);
}

static void refusals(void) {
  pinlane_stream *s = rig.stream;
  pinlane_ticket *ticket = NULL, **t = &ticket;
  char *const memory = allocate(rig.pool, 4096);
  REFUSED(INVALID_HANDLE, pinlane_upload_pinned(NULL, memory, rig.raw, 8, t));
  REFUSED(INVALID_VALUE, pinlane_upload_pinned(s, NULL, rig.raw, 8, t));
  REFUSED(INVALID_VALUE, pinlane_upload_pinned(s, memory, NULL, 8, t));
  REFUSED(INVALID_VALUE, pinlane_upload_pinned(s, memory, rig.raw, SIZE_MAX, t));
  REFUSED(INVALID_VALUE, pinlane_upload_pinned(s, rig.host, rig.raw, 8, t)); /* pageable */
  REFUSED(INVALID_VALUE, pinlane_upload_pinned(s, &ticket, rig.raw, 8, t));
  REFUSED(INVALID_VALUE, pinlane_upload_pinned(s, memory + 1, rig.raw, 4096, t));
  REFUSED(INVALID_VALUE, pinlane_download_pinned(s, NULL, memory, 8, t));
  REFUSED(INVALID_VALUE, pinlane_download_pinned(s, rig.raw, rig.back, 8, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_upload_pinned(s, memory, NULL, 0, 8, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_upload_pinned(s, memory, rig.gpu, LARGE, 1, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_upload_pinned(s, memory, rig.gpu, SIZE_MAX, 2, t));
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_upload_pinned(s, memory, rig.other_gpu, 0, 8, t));
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_upload_pinned(s, NULL, rig.other_gpu, 0, 0, t));
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_download_pinned(s, rig.other_gpu, 0, memory, 8, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_download_pinned(s, rig.gpu, LARGE, memory, 1, t));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_download_pinned(s, rig.gpu, 0, rig.back, 8, t));
  EXPECT(ticket == NULL);
  OK(pinlane_pool_deallocate(rig.pool, memory));
}

/* An allocation may wait for room, up to a timeout. */
static void deadlines(void) {
  pinlane_pool_options options = PINLANE_POOL_OPTIONS_INIT;
  options.max_bytes = 4096;
  pinlane_pool *pool = NULL;
  OK(pinlane_pool_create(rig.device, &options, &pool));
  void *memory = NULL, *other = NULL;
  OK(pinlane_pool_allocate_timeout(pool, 4096, 4096, UINT64_MAX, &memory));
  EXPECT((uintptr_t)memory % 4096 == 0);
  REFUSED(TIMED_OUT, pinlane_pool_allocate_timeout(pool, 1, 1, 2000, &other));
  REFUSED(TIMED_OUT, pinlane_pool_allocate_timeout(pool, 1, 1, 0, &other));
  REFUSED(BUDGET_EXHAUSTED, pinlane_pool_allocate_timeout(pool, 4097, 1, UINT64_MAX, &other));
  REFUSED(INVALID_VALUE, pinlane_pool_allocate_timeout(pool, 1, 3, 0, &other));
  REFUSED(INVALID_VALUE, pinlane_pool_allocate_timeout(pool, 1, 1, 0, NULL));
  REFUSED(INVALID_HANDLE, pinlane_pool_allocate_timeout(NULL, 1, 1, 0, &other));
  EXPECT(other == NULL);
  OK(pinlane_upload_pinned(rig.stream, memory, rig.raw, 4096, NULL));
  OK(pinlane_pool_deallocate(pool, memory));
  OK(pinlane_pool_allocate_timeout(pool, 1, 1, UINT64_MAX, &other)); /* waits for the copy */
  OK(pinlane_pool_deallocate(pool, other));
  OK(pinlane_pool_free(pool));
}

int main(void) {
  set_up_copies();
  copies_return_at_once();
  copies_are_ordered();
  frees_in_flight();
  buffers();
  slices();
  other_pools_and_machines();
  refusals();
  for (int form = 0; form < FORMS; form++) {
    lists_return_at_once((enum form)form);
    lists_that_lose_their_memory((enum form)form);
    lists_of_other_memory((enum form)form);
  }
  lists_that_name_memory_twice();
  deadlines();
  tear_down_copies();
  return verdict("memory of pools by its address");
}
