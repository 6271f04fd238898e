/* What the C interface promises of the transfer engine: slices, batches, plans, files and their options.
 *
 * C11, on the emulated device only: it has lazy execution, so that nothing arrives that nobody waits for. */

#define _POSIX_C_SOURCE 200809L /* fileno and ftruncate, beside strict C */

#include "check.h"

#include <stdlib.h>
#include <unistd.h>

_Static_assert(sizeof(pinlane_copy) == 56, "pinlane_copy");
MEMBER(pinlane_copy, src, 0);
MEMBER(pinlane_copy, bytes, 16);
MEMBER(pinlane_copy, buffer, 24);
MEMBER(pinlane_copy, device_buffer, 40);
MEMBER(pinlane_copy, device_offset, 48);
_Static_assert(sizeof(pinlane_device_copy) == 56, "pinlane_device_copy");
MEMBER(pinlane_device_copy, dst_offset, 48);
_Static_assert(sizeof(pinlane_file_range) == 40, "pinlane_file_range");
MEMBER(pinlane_file_range, bytes, 8);
MEMBER(pinlane_file_range, device_buffer, 24);
MEMBER(pinlane_file_range, device_offset, 32);
_Static_assert(sizeof(pinlane_batch_options) == 16, "pinlane_batch_options");
MEMBER(pinlane_batch_options, path, 8);
_Static_assert(sizeof(pinlane_choice) == 40, "pinlane_choice");
MEMBER(pinlane_choice, predicted_ns, 8);
_Static_assert(sizeof(pinlane_plan) == 88, "pinlane_plan");
MEMBER(pinlane_plan, direct, 48);
_Static_assert(sizeof(pinlane_staging_options) == 64, "pinlane_staging_options");
MEMBER(pinlane_staging_options, streaming_bytes, 48);
MEMBER(pinlane_staging_options, flags, 56);
_Static_assert(sizeof(pinlane_copy_team_options) == 48, "pinlane_copy_team_options");
MEMBER(pinlane_copy_team_options, spin_us, 24);
MEMBER(pinlane_copy_team_options, threads, 32);

enum { LARGE = 3 << 20, PINNED = 1 << 16 };

/* Two devices of a lazy machine. `raw` is the memory of `lent`, used as a program uses memory of its own. */
static struct {
  pinlane_device *device, *other_device;
  pinlane_pool *pool;
  pinlane_stream *stream, *other_stream;
  pinlane_buffer *pinned;
  pinlane_device_buffer *gpu, *gpu2, *lent, *other_gpu;
  char *raw;
  char *host, *back; /* LARGE bytes each, of ordinary memory */
} rig;

static void set_up(void) {
  pinlane_emulator_options options = PINLANE_EMULATOR_OPTIONS_INIT;
  options.execution = PINLANE_EXECUTION_LAZY;
  options.memory_bytes = (size_t)64 << 20;
  pinlane_device *devices[2] = {NULL, NULL};
  OK(pinlane_emulator_create(&options, devices, 2));
  rig.device = devices[0];
  rig.other_device = devices[1];
  OK(pinlane_pool_create(rig.device, NULL, &rig.pool));
  OK(pinlane_stream_create(rig.device, NULL, &rig.stream));
  OK(pinlane_stream_create(rig.other_device, NULL, &rig.other_stream));
  OK(pinlane_buffer_alloc_zeroed(rig.pool, PINNED, &rig.pinned));
  OK(pinlane_device_buffer_alloc(rig.device, LARGE, &rig.gpu));
  OK(pinlane_device_buffer_alloc(rig.device, LARGE, &rig.gpu2));
  OK(pinlane_device_buffer_alloc(rig.device, LARGE, &rig.lent));
  OK(pinlane_device_buffer_alloc(rig.other_device, LARGE, &rig.other_gpu));
  OK(pinlane_device_buffer_acquire(rig.lent, rig.stream));
  OK(pinlane_stream_synchronize(rig.stream));
  void *raw = NULL;
  OK(pinlane_device_buffer_address(rig.lent, &raw));
  rig.raw = raw;
  rig.host = malloc(LARGE);
  rig.back = malloc(LARGE);
  if (rig.host == NULL || rig.back == NULL) {
    abort();
  }
  for (size_t i = 0; i < LARGE; i++) {
    rig.host[i] = (char)(i * i % 251);
  }
}

static void tear_down(void) {
  OK(pinlane_device_free(rig.device));
  OK(pinlane_device_free(rig.other_device));
  OK(pinlane_pool_free(rig.pool));
  OK(pinlane_stream_free(rig.stream));
  OK(pinlane_stream_free(rig.other_stream));
  OK(pinlane_buffer_free(rig.pinned));
  OK(pinlane_device_buffer_free(rig.gpu));
  OK(pinlane_device_buffer_free(rig.gpu2));
  OK(pinlane_device_buffer_free(rig.lent));
  OK(pinlane_device_buffer_free(rig.other_gpu));
  free(rig.host);
  free(rig.back);
}

/* Before the first copy of ordinary memory, after which it is too late. */
static void options(void) {
  pinlane_staging_options ring = PINLANE_STAGING_OPTIONS_INIT;
  REFUSED(INVALID_HANDLE, pinlane_device_set_staging(NULL, &ring));
  REFUSED(INVALID_VALUE, pinlane_device_set_staging(rig.device, NULL));
  ring.size--;
  REFUSED(INVALID_VALUE, pinlane_device_set_staging(rig.device, &ring));
  ring.size++;
  ring.flags = 4;
  REFUSED(INVALID_VALUE, pinlane_device_set_staging(rig.device, &ring));
  ring.flags = PINLANE_STAGING_NO_STREAMING;
  ring.reserved = 1;
  REFUSED(INVALID_VALUE, pinlane_device_set_staging(rig.device, &ring));
  ring.reserved = 0;
  ring.slot_bytes = 100;
  REFUSED(INVALID_VALUE, pinlane_device_set_staging(rig.device, &ring));
  ring.slot_bytes = 64 << 10;
  ring.first_bytes = 4096;
  ring.ring_bytes = 256 << 10;
  OK(pinlane_device_set_staging(rig.device, &ring));
  REFUSED(INVALID_VALUE, pinlane_device_set_staging(rig.device, &ring));

  pinlane_copy_team_options team = PINLANE_COPY_TEAM_OPTIONS_INIT;
  team.size = 0;
  REFUSED(INVALID_VALUE, pinlane_copy_team_install(&team));
  team.size = sizeof team;
  team.flags = 4;
  REFUSED(INVALID_VALUE, pinlane_copy_team_install(&team));
  team.flags = PINLANE_COPY_TEAM_NO_SPIN;
  team.copying = 1;
  team.threads = 257;
  REFUSED(INVALID_VALUE, pinlane_copy_team_install(&team));
  team.threads = 2;
  team.core_count = 1;
  REFUSED(INVALID_VALUE, pinlane_copy_team_install(&team)); /* `cores` is NULL */
  const uint32_t nowhere = UINT32_MAX, first = 0;
  team.cores = &nowhere;
  REFUSED(INVALID_VALUE, pinlane_copy_team_install(&team));
  OK(pinlane_copy_team_install(NULL));
  team.cores = &first;
  OK(pinlane_copy_team_install(&team));
}

static void slices(void) {
  pinlane_stream *s = rig.stream;
  const size_t sizes[] = {0, 1, 4096, 65536, 65537, LARGE};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const size_t bytes = sizes[i];
    pinlane_ticket *ticket = NULL;
    memset(rig.back, 0, LARGE);
    OK(pinlane_upload_slice(s, rig.host, rig.raw, bytes, &ticket));
    OK(pinlane_download_slice(s, rig.raw, rig.back, bytes));
    EXPECT(memcmp(rig.host, rig.back, bytes) == 0 && (bytes == LARGE || rig.back[bytes] == 0));
    OK(pinlane_ticket_wait(ticket));
    OK(pinlane_ticket_free(ticket));

    const size_t at = LARGE - bytes;
    memset(rig.back, 0, LARGE);
    OK(pinlane_device_buffer_upload_slice(s, rig.host, rig.gpu, at, bytes, NULL));
    OK(pinlane_device_buffer_download_slice(s, rig.gpu, at, rig.back, bytes));
    EXPECT(memcmp(rig.host, rig.back, bytes) == 0 && (bytes == LARGE || rig.back[bytes] == 0));
  }

  pinlane_ticket *ticket = NULL, **t = &ticket;
  REFUSED(INVALID_HANDLE, pinlane_upload_slice(NULL, rig.host, rig.raw, 8, t));
  REFUSED(INVALID_VALUE, pinlane_upload_slice(s, NULL, rig.raw, 8, t));
  REFUSED(INVALID_VALUE, pinlane_upload_slice(s, rig.host, NULL, 8, t));
  REFUSED(INVALID_VALUE, pinlane_upload_slice(s, rig.host, rig.raw, SIZE_MAX, t));
  REFUSED(INVALID_VALUE, pinlane_upload_slice(s, rig.host, rig.raw, 8, (void *)((char *)t + 1)));
  REFUSED(INVALID_HANDLE, pinlane_download_slice(NULL, rig.raw, rig.back, 8));
  REFUSED(INVALID_VALUE, pinlane_download_slice(s, NULL, rig.back, 8));
  REFUSED(INVALID_VALUE, pinlane_download_slice(s, rig.raw, NULL, 8));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_upload_slice(s, NULL, rig.gpu, 0, 8, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_upload_slice(s, rig.host, rig.gpu, LARGE, 1, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_upload_slice(s, rig.host, rig.gpu, SIZE_MAX, 2, t));
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_upload_slice(s, rig.host, rig.other_gpu, 0, 8, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_download_slice(s, rig.gpu, 1, rig.back, LARGE));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_download_slice(s, rig.gpu, 0, NULL, 1));
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_download_slice(s, rig.other_gpu, 0, rig.back, 8));
  EXPECT(ticket == NULL);
  OK(pinlane_upload_slice(s, NULL, NULL, 0, NULL));
  OK(pinlane_download_slice(s, NULL, NULL, 0));
}

enum { COPIES = 600, EACH = 96 };

/* Where copy `i` is on the device: back to front, in two buffers and in memory of the program's own. */
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

/* Each fifth copy is empty, each other one of the rest page-locked. */
static size_t size_of(size_t i) { return i % 5 == 4 ? 0 : EACH - i % 7; }
static int is_pinned(size_t i) { return i % 2 == 1; }

static void fill_copies(pinlane_copy *copies, int up) {
  memset(copies, 0, COPIES * sizeof *copies);
  for (size_t i = 0; i < COPIES; i++) {
    copies[i].bytes = size_of(i);
    on_device(&copies[i], i, up);
    if (is_pinned(i)) {
      copies[i].buffer = rig.pinned;
      copies[i].buffer_offset = (i * 7 % COPIES) * EACH; /* 7 and COPIES have no factor in common */
    } else if (up) {
      copies[i].src = rig.host + i * EACH;
    } else {
      copies[i].dst = rig.back + i * EACH;
    }
  }
}

static char expected(size_t i, size_t byte) { return rig.host[i * EACH + byte]; }

/* What was uploaded from all places comes back to all places. */
static void round_trip(int32_t up, int32_t down) {
  static pinlane_copy copies[COPIES];
  pinlane_batch_options options = PINLANE_BATCH_OPTIONS_INIT;
  void *data = NULL;
  OK(pinlane_buffer_write(rig.pinned, &data));
  memset(data, 0, PINNED);
  for (size_t i = 0; i < COPIES; i++) {
    memcpy((char *)data + (i * 7 % COPIES) * EACH, rig.host + i * EACH, EACH);
  }
  fill_copies(copies, 1);
  options.path = up;
  pinlane_ticket *ticket = NULL;
  OK(pinlane_upload_batch(rig.stream, copies, COPIES, &options, &ticket));
  OK(pinlane_ticket_wait(ticket));
  OK(pinlane_ticket_free(ticket));

  OK(pinlane_buffer_write(rig.pinned, &data));
  memset(data, 1, PINNED);
  memset(rig.back, 1, LARGE);
  fill_copies(copies, 0);
  options.path = down;
  OK(pinlane_download_batch(rig.stream, copies, COPIES, &options, NULL));
  const void *read = NULL;
  OK(pinlane_buffer_read(rig.pinned, &read));
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
  round_trip(PINLANE_PATH_NONE, PINLANE_PATH_NONE);
  round_trip(PINLANE_PATH_COPIES, PINLANE_PATH_COPIES);
  round_trip(PINLANE_PATH_BATCH, PINLANE_PATH_BATCH);
  round_trip(PINLANE_PATH_PULL, PINLANE_PATH_NONE);

  pinlane_ticket *ticket = NULL;
  OK(pinlane_upload_batch(rig.stream, NULL, 0, NULL, &ticket));
  OK(pinlane_ticket_free(ticket));
  OK(pinlane_download_batch(rig.stream, NULL, 0, NULL, NULL));
  OK(pinlane_copy_batch(rig.stream, NULL, 0, NULL));
}

/* Refused, and nothing happens: as an upload and as a download. */
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
  options.path = 5;
  REFUSED(INVALID_VALUE, pinlane_upload_batch(s, &one, 1, &options, &ticket));
  options.path = -1;
  REFUSED(INVALID_VALUE, pinlane_upload_batch(s, &one, 1, &options, &ticket));
  options.flags = 1;
  REFUSED(INVALID_VALUE, pinlane_upload_batch(s, &one, 1, &options, &ticket));
  options.flags = 0;
  options.size++;
  REFUSED(INVALID_VALUE, pinlane_download_batch(s, &one, 1, &options, &ticket));

  /* Sides that are named twice, not at all, or wrongly. */
  pinlane_copy bad = one;
  bad.buffer = rig.pinned;
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
  bad.device_buffer = (void *)rig.pinned;
  REFUSED_UP(INVALID_HANDLE, &bad, 1);
  bad.device_buffer = rig.other_gpu;
  bad.device_offset = 0;
  REFUSED_UP(WRONG_DEVICE, &bad, 1);
  bad =
      (pinlane_copy){.dst = rig.raw, .bytes = 8, .buffer = rig.pinned, .buffer_offset = PINNED - 7};
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
  down[0] = (pinlane_copy){.src = rig.raw, .bytes = 8, .buffer = rig.pinned, .buffer_offset = 8};
  down[1] = (pinlane_copy){.src = rig.raw, .bytes = 9, .buffer = rig.pinned};
  REFUSED_DOWN(INVALID_VALUE, down, 2);
  down[1].bytes = 8;
  OK(pinlane_download_batch(s, down, 2, NULL, NULL));
  /* Sources may overlap, and a copy of nothing overlaps nothing. */
  down[0].bytes = 0;
  down[0].buffer_offset = 4;
  OK(pinlane_download_batch(s, down, 2, NULL, NULL));
  options = (pinlane_batch_options)PINLANE_BATCH_OPTIONS_INIT;
  options.path = PINLANE_PATH_PULL; /* kernels do not write to host memory */
  REFUSED(UNSUPPORTED, pinlane_download_batch(s, down, 2, &options, &ticket));

  /* Of another machine. */
  pinlane_device *elsewhere = NULL;
  pinlane_stream *foreign = NULL;
  OK(pinlane_emulator_create(NULL, &elsewhere, 1));
  OK(pinlane_stream_create(elsewhere, NULL, &foreign));
  bad = (pinlane_copy){.bytes = 8, .buffer = rig.pinned, .device_buffer = rig.gpu};
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

static void plans(void) {
  static pinlane_copy copies[COPIES];
  size_t entries = 0, bytes = 0;
  for (size_t i = 0; i < COPIES; i++) {
    entries += !is_pinned(i) && size_of(i) > 0;
    bytes += is_pinned(i) ? 0 : size_of(i);
  }
  pinlane_plan plan = PINLANE_PLAN_INIT;
  char text[512];
  size_t length = 0;
  fill_copies(copies, 1);
  OK(pinlane_plan_upload(rig.stream, copies, COPIES, &plan, text, sizeof text, &length));
  EXPECT(plan.ordinary.copies == entries && plan.ordinary.bytes == bytes);
  EXPECT(plan.ordinary.path != PINLANE_PATH_NONE && plan.direct.path != PINLANE_PATH_NONE);
  EXPECT(plan.ordinary.predicted_ns > 0 && plan.direct.runs <= plan.direct.copies);
  EXPECT(length < sizeof text && strlen(text) == length && strstr(text, "ordinary memory") == text);

  char start[9] = "untouched"; /* no NUL, and one byte that stays */
  OK(pinlane_plan_upload(rig.stream, copies, COPIES, &plan, start, 8, NULL));
  EXPECT(memcmp(start, "ordinary", 7) == 0 && start[7] == '\0' && start[8] == 'd');
  OK(pinlane_plan_upload(rig.stream, NULL, 0, &plan, NULL, 0, &length));
  EXPECT(plan.ordinary.path == PINLANE_PATH_NONE && plan.ordinary.bytes == 0 && length > 0);
  fill_copies(copies, 0);
  OK(pinlane_plan_download(rig.stream, copies, COPIES, &plan, NULL, 0, NULL));
  EXPECT(plan.ordinary.bytes == bytes && plan.direct.path != PINLANE_PATH_PULL);

  const pinlane_plan before = plan;
  length = 77;
  REFUSED(INVALID_HANDLE, pinlane_plan_upload(NULL, copies, 1, &plan, NULL, 0, &length));
  REFUSED(INVALID_HANDLE, pinlane_plan_download(NULL, copies, 1, &plan, NULL, 0, &length));
  REFUSED(INVALID_VALUE, pinlane_plan_upload(rig.stream, copies, 1, NULL, NULL, 0, &length));
  REFUSED(INVALID_VALUE, pinlane_plan_upload(rig.stream, copies, 1, &plan, NULL, 1, &length));
  REFUSED(INVALID_VALUE, pinlane_plan_upload(rig.stream, NULL, 1, &plan, NULL, 0, &length));
  EXPECT(memcmp(&plan, &before, sizeof plan) == 0 && length == 77);
  plan.size = 0;
  REFUSED(INVALID_VALUE, pinlane_plan_upload(rig.stream, copies, 1, &plan, NULL, 0, NULL));
}

/* What a callback was told. */
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
  round_trip(PINLANE_PATH_NONE, PINLANE_PATH_NONE); /* the data is on the device */
  fill_copies(copies, 0);
  struct told told = {.copies = copies, .most = COPIES + 1, .right = 1};
  OK(pinlane_download_batch_each(rig.stream, copies, COPIES, landed, &told));
  EXPECT(told.right && told.calls == COPIES);

  /* Told no more after the tenth, but all are there. */
  memset(rig.back, 1, LARGE);
  told = (struct told){.copies = copies, .most = 10, .right = 1};
  OK(pinlane_download_batch_each(rig.stream, copies, COPIES, landed, &told));
  EXPECT(told.right && told.calls == 10);
  for (size_t i = 0; i < COPIES; i += 2) {
    if (memcmp(rig.back + i * EACH, rig.host + i * EACH, size_of(i)) != 0) {
      EXPECT(!"all have landed");
      break;
    }
  }

  REFUSED(INVALID_VALUE, pinlane_download_batch_each(rig.stream, copies, COPIES, NULL, &told));
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

static void files(void) {
  FILE *const temporary = tmpfile();
  if (temporary == NULL || fwrite(rig.host, LARGE, 1, temporary) != 1 || fflush(temporary) != 0) {
    abort();
  }
  char path[32]; /* it has no other name */
  snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(temporary));
  pinlane_file *file = NULL;
  uint64_t size = 0;
  REFUSED(INVALID_VALUE, pinlane_file_open(NULL, 0, &file));
  REFUSED(INVALID_VALUE, pinlane_file_open(path, 0, NULL));
  REFUSED(INVALID_VALUE, pinlane_file_open(path, 2, &file));
  REFUSED(IO, pinlane_file_open("/", 0, &file));
  REFUSED(IO, pinlane_file_open("/pinlane/no/such/file", PINLANE_FILE_DIRECT, &file));
  EXPECT(file == NULL && strstr(pinlane_last_error(), "/pinlane/no/such/file") != NULL);
  OK(pinlane_file_open(path, 0, &file));
  OK(pinlane_file_size(file, &size));
  EXPECT(size == LARGE);

  pinlane_stream *s = rig.stream;
  OK(pinlane_upload_file(s, file, 1, rig.raw, LARGE - 1, NULL));
  OK(pinlane_download_slice(s, rig.raw, rig.back, LARGE - 1));
  EXPECT(memcmp(rig.back, rig.host + 1, LARGE - 1) == 0);
  const pinlane_file_range ranges[] = {
      {.offset = 100, .bytes = 200000, .device_buffer = rig.gpu, .device_offset = 300000},
      {.offset = 5, .bytes = 0, .device_buffer = rig.gpu, .device_offset = 300001},
      {.offset = 7, .bytes = 100000, .device_buffer = rig.gpu, .device_offset = 200000},
      {.offset = LARGE - 9, .bytes = 9, .dst = rig.raw},
  };
  OK(pinlane_upload_file_ranges(s, file, ranges, 4, NULL));
  OK(pinlane_device_buffer_download_slice(s, rig.gpu, 200000, rig.back, 300000));
  EXPECT(memcmp(rig.back, rig.host + 7, 100000) == 0);
  EXPECT(memcmp(rig.back + 100000, rig.host + 100, 200000) == 0);
  OK(pinlane_download_slice(s, rig.raw, rig.back, 9));
  EXPECT(memcmp(rig.back, rig.host + LARGE - 9, 9) == 0);
  OK(pinlane_device_buffer_upload_file(s, file, 3, rig.gpu2, 5, 1000, NULL));
  OK(pinlane_device_buffer_download_slice(s, rig.gpu2, 5, rig.back, 1000));
  EXPECT(memcmp(rig.back, rig.host + 3, 1000) == 0);
  const void *data = NULL;
  OK(pinlane_file_read(file, 11, rig.pinned, 1, PINNED - 1));
  OK(pinlane_buffer_read(rig.pinned, &data));
  EXPECT(memcmp((const char *)data + 1, rig.host + 11, PINNED - 1) == 0);

  pinlane_ticket *ticket = NULL, **t = &ticket;
  REFUSED(OUT_OF_RANGE, pinlane_upload_file(s, file, 1, rig.raw, LARGE, t));
  REFUSED(OUT_OF_RANGE, pinlane_upload_file(s, file, UINT64_MAX, rig.raw, 2, t));
  REFUSED(INVALID_VALUE, pinlane_upload_file(s, file, 0, NULL, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_upload_file(NULL, file, 0, rig.raw, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_upload_file(s, NULL, 0, rig.raw, 1, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_upload_file(s, file, 0, rig.gpu, 1, LARGE, t));
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_upload_file(s, file, 0, rig.other_gpu, 0, 1, t));
  REFUSED(OUT_OF_RANGE, pinlane_file_read(file, 0, rig.pinned, 1, PINNED));
  REFUSED(OUT_OF_RANGE, pinlane_file_read(file, LARGE, rig.pinned, 0, 1));
  REFUSED(INVALID_HANDLE, pinlane_file_read(file, 0, NULL, 0, 1));
  REFUSED(INVALID_VALUE, pinlane_upload_file_ranges(s, file, NULL, 1, t));
  REFUSED(INVALID_VALUE,
          pinlane_upload_file_ranges(s, file, (pinlane_file_range[]){ranges[0], ranges[0]}, 2, t));
  EXPECT(ticket == NULL);

  /* Cut off after it was opened: a status, and no signal. */
  EXPECT(ftruncate(fileno(temporary), 10) == 0);
  REFUSED(OUT_OF_RANGE, pinlane_upload_file(s, file, 0, rig.raw, 11, t));
  OK(pinlane_upload_file(s, file, 0, rig.raw, 10, NULL));
  OK(pinlane_file_free(file));
  REFUSED(INVALID_HANDLE, pinlane_file_free(file));
  OK(pinlane_file_free(NULL));

  /* Past the page cache, where the file system can. */
  file = NULL;
  const pinlane_status direct = pinlane_file_open(path, PINLANE_FILE_DIRECT, &file);
  EXPECT(direct == PINLANE_STATUS_OK || direct == PINLANE_STATUS_UNSUPPORTED);
  if (direct == PINLANE_STATUS_OK) {
    OK(pinlane_upload_file(s, file, 1, rig.raw, 9, NULL));
    OK(pinlane_download_slice(s, rig.raw, rig.back, 9));
    EXPECT(memcmp(rig.back, rig.host + 1, 9) == 0);
  }
  OK(pinlane_file_free(file));
  fclose(temporary);
}

int main(void) {
  set_up();
  options();
  slices();
  batches();
  bad_batches();
  plans();
  downloads_that_tell();
  between_buffers();
  files();
  pinlane_copy_team_options alone = PINLANE_COPY_TEAM_OPTIONS_INIT;
  alone.flags = PINLANE_COPY_TEAM_ALONE;
  OK(pinlane_copy_team_install(&alone));
  slices();
  tear_down();
  return verdict("the transfer engine");
}
