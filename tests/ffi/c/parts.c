/* Parts by arrays of offsets. C11, on a lazy emulated device: copies run only when the program
 * waits. */

#include "copy_rig.h"

_Static_assert(sizeof(pinlane_parts) == 48, "pinlane_parts");
MEMBER(pinlane_parts, from, 0);
MEMBER(pinlane_parts, to, 8);
MEMBER(pinlane_parts, lengths, 16);
MEMBER(pinlane_parts, length, 24);
MEMBER(pinlane_parts, count, 32);
MEMBER(pinlane_parts, unit, 40);

enum { OFFSET = 24, SPAN = 20000, COUNT = 300 };

/* Where the host's parts are. */
enum place { PAGEABLE, PINNED_BUFFER, OF_A_POOL, PINNED_MEMORY, PLACES };

/* Memory of the pool that is named by its address. */
static char *pool_memory;

/* The host's bytes, to write. */
static char *bytes_at(enum place place) {
  void *data = NULL;
  if (place == PINNED_BUFFER) {
    OK(pinlane_buffer_write(rig.buffer, &data));
    return (char *)data + OFFSET;
  }
  OK(pinlane_stream_synchronize(rig.stream));
  return place == PAGEABLE ? rig.back : pool_memory;
}

/* SPAN bytes at `place`, and as many at an odd offset on the device. */
static pinlane_layer layer_at(enum place place, int up) {
  pinlane_layer layer = {.device_buffer = rig.gpu, .device_offset = 13};
  layer.src_bytes = layer.dst_bytes = SPAN;
  if (place == PINNED_BUFFER) {
    layer.buffer = rig.buffer;
    layer.buffer_offset = OFFSET;
  } else if (place == PINNED_MEMORY) {
    layer.pinned = pool_memory;
  } else if (up) {
    layer.src = place == PAGEABLE ? rig.back : pool_memory;
  } else {
    layer.dst = place == PAGEABLE ? rig.back : pool_memory;
  }
  return layer;
}

static size_t from[COUNT], to[COUNT], lengths[COUNT];

/* Scattered parts of up to nine elements, which are `unit` bytes long. */
static pinlane_parts scattered(size_t unit, int equal) {
  for (size_t i = 0; i < COUNT; i++) {
    from[i] = i * 7 % COUNT * 10 + i % 3;
    to[i] = i * 11 % COUNT * 10 + 1;
    lengths[i] = equal ? 6 : i % 10;
  }
  pinlane_parts parts = {.from = from, .to = to, .count = COUNT, .unit = unit};
  if (equal) {
    parts.length = 6;
  } else {
    parts.lengths = lengths;
  }
  return parts;
}

/* Copies parts as the call should. */
static void model(char *dst, const char *src, const pinlane_parts *parts) {
  const size_t unit = parts->unit == 0 ? 1 : parts->unit;
  for (size_t i = 0; i < parts->count; i++) {
    const size_t length = parts->lengths == NULL ? parts->length : parts->lengths[i];
    memcpy(dst + parts->to[i] * unit, src + parts->from[i] * unit, length * unit);
  }
}

static void there_and_back(enum place place, size_t unit, int equal, int32_t route) {
  static char before[SPAN], expected[SPAN], found[SPAN];
  const pinlane_parts parts = scattered(unit, equal);
  pinlane_batch_options options = PINLANE_BATCH_OPTIONS_INIT;
  options.route = route;
  for (size_t i = 0; i < SPAN; i++) {
    before[i] = (char)(i * 3 + 1);
  }
  /* Up. */
  memcpy(bytes_at(place), rig.host, SPAN);
  OK(pinlane_device_buffer_upload_slice(rig.stream, before, rig.gpu, 13, SPAN, NULL));
  pinlane_layer layer = layer_at(place, 1);
  pinlane_ticket *ticket = NULL;
  OK(pinlane_upload_parts(rig.stream, &layer, &parts, &options, &ticket));
  OK(pinlane_ticket_wait(ticket));
  OK(pinlane_ticket_free(ticket));
  memcpy(expected, before, SPAN);
  model(expected, rig.host, &parts);
  OK(pinlane_device_buffer_download_slice(rig.stream, rig.gpu, 13, found, SPAN));
  EXPECT(memcmp(found, expected, SPAN) == 0);
  /* Down. */
  memcpy(bytes_at(place), before, SPAN);
  OK(pinlane_device_buffer_upload_slice(rig.stream, rig.host, rig.gpu, 13, SPAN, NULL));
  layer = layer_at(place, 0);
  OK(pinlane_download_parts(rig.stream, &layer, &parts, &options, NULL));
  EXPECT(memcmp(bytes_at(place), expected, SPAN) == 0);
}

static void none(void) {
  const pinlane_parts nothing = {0};
  const pinlane_layer up = layer_at(PAGEABLE, 1), down = layer_at(PAGEABLE, 0);
  OK(pinlane_upload_parts(rig.stream, &up, &nothing, NULL, NULL));
  OK(pinlane_download_parts(rig.stream, &down, &nothing, NULL, NULL));
}

/* Refused in both directions. */
#define REFUSED_BOTH(status, parts, options)                                                       \
  do {                                                                                             \
    REFUSED(status, pinlane_upload_parts(rig.stream, &up, parts, options, &ticket));               \
    REFUSED(status, pinlane_download_parts(rig.stream, &down, parts, options, &ticket));           \
  } while (0)

static void bad_arguments(void) {
  pinlane_ticket *ticket = NULL;
  const pinlane_layer up = layer_at(PAGEABLE, 1), down = layer_at(PAGEABLE, 0);
  const pinlane_parts good = scattered(2, 1);
  pinlane_parts bad = good;
  from[7] = SPAN / 2 - 5;
  REFUSED_BOTH(OUT_OF_RANGE, &good, NULL);
  EXPECT(strstr(pinlane_last_error(), "part 7 is 6 elements from 9995 on, in a source") != NULL);
  from[7] = SIZE_MAX;
  REFUSED_BOTH(OUT_OF_RANGE, &good, NULL);
  scattered(2, 1);
  to[9] = SPAN / 2 - 5;
  REFUSED_BOTH(OUT_OF_RANGE, &good, NULL);
  to[9] = to[4] + 5;
  REFUSED_BOTH(INVALID_VALUE, &good, NULL);
  EXPECT(strstr(pinlane_last_error(), "part 9 (6 elements at") != NULL);
  EXPECT(strstr(pinlane_last_error(), "overlaps part 4 (") != NULL);
  scattered(2, 1);
  bad.unit = 20;
  REFUSED_BOTH(OUT_OF_RANGE, &bad, NULL);
  bad.unit = SIZE_MAX;
  REFUSED_BOTH(OUT_OF_RANGE, &bad, NULL);
  bad = good, bad.from = NULL;
  REFUSED_BOTH(INVALID_VALUE, &bad, NULL);
  bad = good, bad.to = NULL;
  REFUSED_BOTH(INVALID_VALUE, &bad, NULL);
  bad = good, bad.lengths = (const void *)((const char *)lengths + 1);
  REFUSED_BOTH(INVALID_VALUE, &bad, NULL);
  REFUSED_BOTH(INVALID_VALUE, NULL, NULL);
  pinlane_batch_options options = PINLANE_BATCH_OPTIONS_INIT;
  options.route = 17;
  REFUSED_BOTH(INVALID_VALUE, &good, &options);

  REFUSED(INVALID_VALUE, pinlane_upload_parts(rig.stream, NULL, &good, NULL, &ticket));
  REFUSED(INVALID_VALUE, pinlane_download_parts(rig.stream, NULL, &good, NULL, &ticket));
  REFUSED(INVALID_HANDLE, pinlane_upload_parts(NULL, &up, &good, NULL, &ticket));
  REFUSED(INVALID_HANDLE, pinlane_download_parts(NULL, &down, &good, NULL, &ticket));
  REFUSED(WRONG_DEVICE, pinlane_upload_parts(rig.other_stream, &up, &good, NULL, &ticket));
  pinlane_layer foreign = up;
  foreign.src = NULL, foreign.pinned = rig.host;
  REFUSED(INVALID_VALUE, pinlane_upload_parts(rig.stream, &foreign, &good, NULL, &ticket));
  EXPECT(ticket == NULL);
}

int main(void) {
  set_up_copies();
  void *memory = NULL;
  OK(pinlane_pool_allocate(rig.pool, SPAN, 64, &memory));
  pool_memory = memory;
  for (enum place place = 0; place < PLACES; place++) {
    for (int32_t route = PINLANE_ROUTE_AUTOMATIC; route <= PINLANE_ROUTE_KERNEL; route++) {
      there_and_back(place, 0, 0, route);
      there_and_back(place, 6, 1, route);
    }
  }
  none();
  bad_arguments();
  OK(pinlane_pool_deallocate(rig.pool, memory));
  tear_down_copies();
  return verdict("copies of parts");
}
