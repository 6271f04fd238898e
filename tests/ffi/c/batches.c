/* Many copies by one call: between host and device, and between device buffers. C11, on a lazy
 * emulated device: copies run only when the program waits. */

#include "copy_rig.h"

_Static_assert(sizeof(pinlane_copy) == 64, "pinlane_copy");
MEMBER(pinlane_copy, src, 0);
MEMBER(pinlane_copy, bytes, 16);
MEMBER(pinlane_copy, buffer, 24);
MEMBER(pinlane_copy, device_buffer, 40);
MEMBER(pinlane_copy, device_offset, 48);
MEMBER(pinlane_copy, pinned, 56);
_Static_assert(sizeof(pinlane_device_copy) == 64, "pinlane_device_copy");
MEMBER(pinlane_device_copy, dst_offset, 48);
MEMBER(pinlane_device_copy, reserved, 56);
_Static_assert(sizeof(pinlane_batch_options) == 16, "pinlane_batch_options");
MEMBER(pinlane_batch_options, route, 8);

enum { COPIES = 600, EACH = 96 };

/* The place of copy `i` on the device: back to front, in two buffers and in the program's own
 * memory. */
static void on_device(pinlane_copy *copy, size_t i, int up) {
  const size_t at = (COPIES - 1 - i) * EACH;
  if (i % 3 == 0) {
    if (up) {
      copy->dst = rig.raw + at;
    } else {
      copy->src = rig.raw + at;
    }
  } else {
    copy->device_buffer = i % 3 == 1 ? rig.gpu : rig.gpu2;
    copy->device_offset = at;
  }
}

/* Each fifth copy is empty, each second one page-locked. */
static size_t size_of(size_t i) { return i % 5 == 4 ? 0 : EACH - i % 7; }
static int is_pinned(size_t i) { return i % 2 == 1; }

static void fill_copies(pinlane_copy *copies, int up) {
  memset(copies, 0, COPIES * sizeof *copies);
  for (size_t i = 0; i < COPIES; i++) {
    copies[i].bytes = size_of(i);
    on_device(&copies[i], i, up);
    if (is_pinned(i)) {
      copies[i].buffer = rig.buffer;
      copies[i].buffer_offset = (i * 7 % COPIES) * EACH; /* 7 and COPIES have no factor in common */
    } else if (up) {
      copies[i].src = rig.host + i * EACH;
    } else {
      copies[i].dst = rig.back + i * EACH;
    }
  }
}

static char expected(size_t i, size_t byte) { return rig.host[i * EACH + byte]; }

/* Uploads from all kinds of memory, downloads to all kinds, and compares. */
static void round_trip(int32_t up, int32_t down) {
  static pinlane_copy copies[COPIES];
  pinlane_batch_options options = PINLANE_BATCH_OPTIONS_INIT;
  void *data = NULL;
  OK(pinlane_buffer_write(rig.buffer, &data));
  memset(data, 0, PINNED);
  for (size_t i = 0; i < COPIES; i++) {
    memcpy((char *)data + (i * 7 % COPIES) * EACH, rig.host + i * EACH, EACH);
  }
  fill_copies(copies, 1);
  options.route = up;
  pinlane_ticket *ticket = NULL;
  OK(pinlane_upload_batch(rig.stream, copies, COPIES, &options, &ticket));
  OK(pinlane_ticket_wait(ticket));
  OK(pinlane_ticket_free(ticket));

  OK(pinlane_buffer_write(rig.buffer, &data));
  memset(data, 1, PINNED);
  memset(rig.back, 1, LARGE);
  fill_copies(copies, 0);
  options.route = down;
  OK(pinlane_download_batch(rig.stream, copies, COPIES, &options, NULL));
  const void *read = NULL;
  OK(pinlane_buffer_read(rig.buffer, &read));
  int right = 1;
  for (size_t i = 0; i < COPIES; i++) {
    const char *got =
        is_pinned(i) ? (const char *)read + copies[i].buffer_offset : rig.back + i * EACH;
    for (size_t byte = 0; byte < EACH; byte++) {
      right &= got[byte] == (byte < size_of(i) ? expected(i, byte) : 1);
    }
  }
  EXPECT(right);
}

static void batches(void) {
  round_trip(PINLANE_ROUTE_AUTOMATIC, PINLANE_ROUTE_AUTOMATIC);
  round_trip(PINLANE_ROUTE_COPIES, PINLANE_ROUTE_COPIES);
  round_trip(PINLANE_ROUTE_BATCH_CALL, PINLANE_ROUTE_BATCH_CALL);
  round_trip(PINLANE_ROUTE_KERNEL, PINLANE_ROUTE_KERNEL);

  pinlane_ticket *ticket = NULL;
  OK(pinlane_upload_batch(rig.stream, NULL, 0, NULL, &ticket));
  OK(pinlane_ticket_free(ticket));
  OK(pinlane_download_batch(rig.stream, NULL, 0, NULL, NULL));
  OK(pinlane_copy_batch(rig.stream, NULL, 0, NULL));
}

/* A batch that is refused as an upload and as a download. */
#define REFUSED_UP(status, copies, count)                                                          \
  REFUSED(status, pinlane_upload_batch(rig.stream, copies, count, NULL, &ticket))
#define REFUSED_DOWN(status, copies, count)                                                        \
  REFUSED(status, pinlane_download_batch(rig.stream, copies, count, NULL, &ticket))

static void bad_batches(void) {
  pinlane_ticket *ticket = NULL;
  pinlane_stream *s = rig.stream;
  pinlane_copy one = {.src = rig.host, .dst = rig.raw, .bytes = 8};
  REFUSED(INVALID_HANDLE, pinlane_upload_batch(NULL, &one, 1, NULL, &ticket));
  REFUSED(INVALID_HANDLE, pinlane_download_batch(NULL, &one, 1, NULL, &ticket));
  REFUSED_UP(INVALID_VALUE, NULL, 1);
  REFUSED_UP(INVALID_VALUE, &one, SIZE_MAX);
  REFUSED_UP(INVALID_VALUE, (void *)((char *)&one + 1), 1);
  REFUSED(INVALID_VALUE, pinlane_upload_batch(s, &one, 1, NULL, (void *)((char *)&ticket + 1)));

  pinlane_batch_options options = PINLANE_BATCH_OPTIONS_INIT;
  options.route = 5;
  REFUSED(INVALID_VALUE, pinlane_upload_batch(s, &one, 1, &options, &ticket));
  options.route = -1;
  REFUSED(INVALID_VALUE, pinlane_upload_batch(s, &one, 1, &options, &ticket));
  options.flags = 1;
  REFUSED(INVALID_VALUE, pinlane_upload_batch(s, &one, 1, &options, &ticket));
  options.flags = 0;
  options.size++;
  REFUSED(INVALID_VALUE, pinlane_download_batch(s, &one, 1, &options, &ticket));

  /* Sides that are named twice, not at all, or incorrectly. */
  pinlane_copy bad = one;
  bad.buffer = rig.buffer;
  REFUSED_UP(INVALID_VALUE, &bad, 1);
  bad = one;
  bad.device_buffer = rig.gpu;
  REFUSED_UP(INVALID_VALUE, &bad, 1);
  bad = one;
  bad.src = NULL;
  REFUSED_UP(INVALID_VALUE, &bad, 1);
  bad = one;
  bad.dst = NULL;
  REFUSED_UP(INVALID_VALUE, &bad, 1);
  bad = one;
  bad.bytes = SIZE_MAX;
  REFUSED_UP(INVALID_VALUE, &bad, 1);
  bad = (pinlane_copy){
      .src = rig.host, .bytes = 8, .device_buffer = rig.gpu, .device_offset = SIZE_MAX};
  REFUSED_UP(OUT_OF_RANGE, &bad, 1);
  bad.device_offset = LARGE - 7;
  REFUSED_UP(OUT_OF_RANGE, &bad, 1);
  bad.device_buffer = (void *)rig.buffer;
  REFUSED_UP(INVALID_HANDLE, &bad, 1);
  bad.device_buffer = rig.other_gpu;
  bad.device_offset = 0;
  REFUSED_UP(WRONG_DEVICE, &bad, 1);
  bad =
      (pinlane_copy){.dst = rig.raw, .bytes = 8, .buffer = rig.buffer, .buffer_offset = PINNED - 7};
  REFUSED_UP(OUT_OF_RANGE, &bad, 1);
  bad.buffer = (void *)&bad;
  REFUSED_UP(INVALID_HANDLE, &bad, 1);
  pinlane_buffer *freed = NULL;
  OK(pinlane_buffer_alloc(rig.pool, 64, &freed));
  OK(pinlane_buffer_free(freed));
  bad.buffer = freed;
  REFUSED_UP(INVALID_HANDLE, &bad, 1);

  /* Destinations that overlap, on the device and on the host, however they are named. */
  pinlane_copy up[2] = {one, one};
  up[1].dst = rig.raw + 7;
  REFUSED_UP(INVALID_VALUE, up, 2);
  up[1] =
      (pinlane_copy){.src = rig.host, .bytes = 8, .device_buffer = rig.lent, .device_offset = 7};
  REFUSED_UP(INVALID_VALUE, up, 2);
  up[0] =
      (pinlane_copy){.src = rig.host, .bytes = 8, .device_buffer = rig.lent, .device_offset = 14};
  REFUSED_UP(INVALID_VALUE, up, 2);
  up[0].device_offset = 15;
  OK(pinlane_upload_batch(s, up, 2, NULL, NULL)); /* side by side */

  pinlane_copy down[2] = {{.src = rig.raw, .dst = rig.back, .bytes = 8},
                          {.src = rig.raw, .dst = rig.back + 7, .bytes = 8}};
  REFUSED_DOWN(INVALID_VALUE, down, 2);
  down[0] = (pinlane_copy){.src = rig.raw, .bytes = 8, .buffer = rig.buffer, .buffer_offset = 8};
  down[1] = (pinlane_copy){.src = rig.raw, .bytes = 9, .buffer = rig.buffer};
  REFUSED_DOWN(INVALID_VALUE, down, 2);
  down[1].bytes = 8;
  OK(pinlane_download_batch(s, down, 2, NULL, NULL));
  /* Sources may overlap, and a copy of nothing overlaps nothing. */
  down[0].bytes = 0;
  down[0].buffer_offset = 4;
  OK(pinlane_download_batch(s, down, 2, NULL, NULL));
  options = (pinlane_batch_options)PINLANE_BATCH_OPTIONS_INIT;
  options.route = PINLANE_ROUTE_KERNEL;
  OK(pinlane_download_batch(s, down, 2, &options, NULL));
  /* CUDA has no batch call on the legacy default stream. */
  options.route = PINLANE_ROUTE_BATCH_CALL;
  pinlane_stream *legacy = NULL;
  OK(pinlane_stream_borrow(rig.device, NULL, &legacy));
  REFUSED(UNSUPPORTED, pinlane_download_batch(legacy, down, 2, &options, &ticket));
  OK(pinlane_stream_free(legacy));

  /* Buffers of another machine. */
  pinlane_device *elsewhere = NULL;
  pinlane_stream *foreign = NULL;
  OK(pinlane_emulator_create(NULL, &elsewhere, 1));
  OK(pinlane_stream_create(elsewhere, NULL, &foreign));
  bad = (pinlane_copy){.bytes = 8, .buffer = rig.buffer, .device_buffer = rig.gpu};
  REFUSED(WRONG_DEVICE, pinlane_upload_batch(foreign, &bad, 1, NULL, &ticket));
  REFUSED(WRONG_DEVICE, pinlane_download_batch(foreign, &bad, 1, NULL, &ticket));
  pinlane_device_buffer *there = NULL;
  OK(pinlane_device_buffer_alloc(elsewhere, 8, &there));
  bad.device_buffer = there;
  pinlane_buffer *unused = NULL;
  OK(pinlane_buffer_alloc(rig.pool, 64, &unused));
  bad.buffer = unused;
  REFUSED(WRONG_DEVICE, pinlane_upload_batch(foreign, &bad, 1, NULL, &ticket));
  REFUSED(WRONG_DEVICE, pinlane_download_batch(foreign, &bad, 1, NULL, &ticket));
  OK(pinlane_buffer_free(unused));
  OK(pinlane_device_buffer_free(there));
  OK(pinlane_stream_free(foreign));
  OK(pinlane_device_free(elsewhere));
  EXPECT(ticket == NULL);
}

/* The state of the callback. */
struct told {
  const pinlane_copy *copies;
  size_t calls, most;
  int right, done[COPIES];
};

static int32_t landed(void *user, size_t number, const void *data, size_t bytes) {
  struct told *told = user;
  told->right &= told->calls < told->most && number < COPIES && !told->done[number];
  told->right &= bytes == size_of(number);
  for (size_t i = 0; told->right && i < bytes; i++) {
    told->right &= ((const char *)data)[i] == expected(number, i);
  }
  told->right &= is_pinned(number) || bytes == 0 || data == told->copies[number].dst;
  told->done[number] = 1;
  return ++told->calls == told->most;
}

static void downloads_that_tell(void) {
  static pinlane_copy copies[COPIES];
  round_trip(PINLANE_ROUTE_AUTOMATIC, PINLANE_ROUTE_AUTOMATIC); /* the data is on the device */
  fill_copies(copies, 0);
  struct told told = {.copies = copies, .most = COPIES + 1, .right = 1};
  OK(pinlane_download_batch_each(rig.stream, copies, COPIES, landed, &told));
  EXPECT(told.right && told.calls == COPIES);

  /* Not called again after the tenth, but all copies arrive. */
  memset(rig.back, 1, LARGE);
  told = (struct told){.copies = copies, .most = 10, .right = 1};
  OK(pinlane_download_batch_each(rig.stream, copies, COPIES, landed, &told));
  EXPECT(told.right && told.calls == 10);
  for (size_t i = 0; i < COPIES; i += 2) {
    if (memcmp(rig.back + i * EACH, rig.host + i * EACH, size_of(i)) != 0) {
      EXPECT(!"all have arrived");
      break;
    }
  }

  REFUSED(INVALID_VALUE, pinlane_download_batch_each(rig.stream, copies, COPIES, NULL, &told));
  const pinlane_copy twice = {.dst = rig.back, .pinned = rig.back};
  REFUSED(INVALID_VALUE, pinlane_download_batch_each(rig.stream, &twice, 1, landed, &told));
  REFUSED(INVALID_HANDLE, pinlane_download_batch_each(NULL, copies, COPIES, landed, &told));
  REFUSED(INVALID_VALUE, pinlane_download_batch_each(rig.stream, NULL, 1, landed, &told));
  EXPECT(told.calls == 10);
}

static void between_buffers(void) {
  OK(pinlane_device_buffer_upload_slice(rig.stream, rig.host, rig.gpu, 0, LARGE, NULL));
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu2, 0, LARGE, "x", 1, NULL));
  const pinlane_device_copy copies[] = {
      {.bytes = 100,
       .src_buffer = rig.gpu,
       .src_offset = 50,
       .dst_buffer = rig.gpu2,
       .dst_offset = 200},
      {.bytes = 0, .src_buffer = rig.gpu, .dst_buffer = rig.gpu2, .dst_offset = 210},
      {.bytes = 100,
       .src_buffer = rig.gpu,
       .src_offset = 50,
       .dst_buffer = rig.gpu2,
       .dst_offset = 100},
      {.bytes = 30, .src_buffer = rig.gpu, .src_offset = 7, .dst_buffer = rig.other_gpu},
  };
  OK(pinlane_copy_batch(rig.stream, copies, 4, NULL));
  OK(pinlane_device_buffer_download_slice(rig.stream, rig.gpu2, 0, rig.back, 301));
  EXPECT(rig.back[99] == 'x' && rig.back[300] == 'x');
  EXPECT(memcmp(rig.back + 100, rig.host + 50, 100) == 0);
  EXPECT(memcmp(rig.back + 200, rig.host + 50, 100) == 0);
  OK(pinlane_device_buffer_download_slice(rig.other_stream, rig.other_gpu, 0, rig.back, 30));
  EXPECT(memcmp(rig.back, rig.host + 7, 30) == 0);

  pinlane_ticket *ticket = NULL, **t = &ticket;
  pinlane_device_copy bad = copies[0];
  REFUSED(INVALID_HANDLE, pinlane_copy_batch(NULL, copies, 4, t));
  REFUSED(INVALID_VALUE, pinlane_copy_batch(rig.stream, NULL, 4, t));
  bad.dst_buffer = rig.gpu;
  REFUSED(INVALID_VALUE, pinlane_copy_batch(rig.stream, &bad, 1, t));
  bad = copies[0];
  bad.src = rig.raw;
  REFUSED(INVALID_VALUE, pinlane_copy_batch(rig.stream, &bad, 1, t));
  bad = copies[0];
  bad.src_offset = LARGE - 99;
  REFUSED(OUT_OF_RANGE, pinlane_copy_batch(rig.stream, &bad, 1, t));
  bad = copies[0];
  bad.dst_buffer = rig.other_gpu;
  bad.src_buffer = NULL;
  REFUSED(INVALID_VALUE, pinlane_copy_batch(rig.stream, &bad, 1, t));
  const pinlane_device_copy twice[] = {copies[0], copies[0]};
  REFUSED(INVALID_VALUE, pinlane_copy_batch(rig.stream, twice, 2, t));
  const pinlane_device_copy onto_source = {.src = rig.raw, .dst = rig.raw + 7, .bytes = 8};
  REFUSED(INVALID_VALUE, pinlane_copy_batch(rig.stream, &onto_source, 1, t));
  EXPECT(ticket == NULL);
}

/* Small slots, so that a batch takes several, filled by two threads. */
static void small_slots(void) {
  pinlane_staging_options ring = PINLANE_STAGING_OPTIONS_INIT;
  ring.slot_bytes = 8 << 10;
  ring.first_bytes = 4096;
  ring.ring_bytes = 32 << 10;
  OK(pinlane_device_set_staging(rig.device, &ring));
  pinlane_copy_team_options team = PINLANE_COPY_TEAM_OPTIONS_INIT;
  team.threads = 2;
  OK(pinlane_copy_team_install(&team));
}

int main(void) {
  set_up_copies();
  small_slots();
  batches();
  bad_batches();
  downloads_that_tell();
  between_buffers();
  tear_down_copies();
  return verdict("batches");
}
