/* Rows that lie a pitch apart. C11, on a lazy emulated device: copies run only when the program
 * waits. */

#include "copy_rig.h"

_Static_assert(sizeof(pinlane_strided) == 40, "pinlane_strided");
MEMBER(pinlane_strided, row_bytes, 0);
MEMBER(pinlane_strided, rows, 8);
MEMBER(pinlane_strided, pitch, 16);
MEMBER(pinlane_strided, planes, 24);
MEMBER(pinlane_strided, plane_pitch, 32);

enum { OFFSET = 24, SPAN = 20000 };

/* Where the host's rows are. */
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

/* A layer of `host` bytes at `place`, and `gpu` bytes at an odd offset on the device. */
static pinlane_layer layer_at(enum place place, int up, size_t host, size_t gpu) {
  pinlane_layer layer = {.device_buffer = rig.gpu, .device_offset = 13};
  layer.src_bytes = up ? host : gpu;
  layer.dst_bytes = up ? gpu : host;
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

/* Copies rows as the call should. */
static void model(char *to, const pinlane_strided *dst, const char *from,
                  const pinlane_strided *src) {
  const size_t planes = src->planes == 0 ? 1 : src->planes;
  for (size_t plane = 0; plane < planes; plane++) {
    for (size_t row = 0; row < src->rows; row++) {
      memcpy(to + plane * dst->plane_pitch + row * dst->pitch,
             from + plane * src->plane_pitch + row * src->pitch, src->row_bytes);
    }
  }
}

static const pinlane_strided shapes[][2] = {
    {{100, 30, 150, 1, 0}, {100, 30, 120, 1, 0}},
    {{100, 30, 150, 0, 0}, {100, 30, 100, 1, 0}},
    {{60, 5, 100, 7, 900}, {60, 5, 60, 7, 333}},
    {{60, 5, 700, 7, 100}, {60, 5, 60, 7, 300}}, /* planes that lie interleaved */
    {{5000, 3, 6000, 1, 0}, {5000, 3, 5000, 1, 0}},
    {{1, 50, 9, 1, 0}, {1, 50, 2, 1, 0}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Up, down and across, between rows of every place. */
static void rows_arrive(void) {
  char *const before = malloc(SPAN), *const expected = malloc(SPAN);
  if (before == NULL || expected == NULL) {
    abort();
  }
  for (int place = PAGEABLE; place < PLACES; place++) {
    for (size_t n = 0; n < SHAPES; n++) {
      const pinlane_strided *const host = &shapes[n][0], *const gpu = &shapes[n][1];
      memcpy(bytes_at(place), rig.host, SPAN);
      memset(before, 0x5a, SPAN);
      OK(pinlane_device_buffer_upload_slice(rig.stream, before, rig.gpu, 13, SPAN, NULL));
      const pinlane_layer up = layer_at(place, 1, SPAN, SPAN);
      pinlane_ticket *ticket = NULL;
      OK(pinlane_upload_strided(rig.stream, &up, host, gpu, &ticket));
      OK(pinlane_ticket_wait(ticket));
      OK(pinlane_ticket_free(ticket));
      memcpy(expected, before, SPAN);
      model(expected, gpu, rig.host, host);
      OK(pinlane_device_buffer_download_slice(rig.stream, rig.gpu, 13, before, SPAN));
      EXPECT(memcmp(before, expected, SPAN) == 0);

      /* From there to another buffer, and to rows of the host. */
      OK(pinlane_device_buffer_fill(rig.stream, rig.gpu2, 7, SPAN, "\x11", 1, NULL));
      OK(pinlane_device_buffer_copy_strided(rig.stream, rig.gpu, 13, SPAN, gpu, rig.gpu2, 7, SPAN,
                                            host, NULL));
      memset(before, 0x11, SPAN);
      model(before, host, expected, gpu);
      OK(pinlane_device_buffer_download_slice(rig.stream, rig.gpu2, 7, rig.back, SPAN));
      EXPECT(memcmp(before, rig.back, SPAN) == 0);

      memset(bytes_at(place), 0x22, SPAN);
      const pinlane_layer down = layer_at(place, 0, SPAN, SPAN);
      OK(pinlane_download_strided(rig.stream, &down, gpu, host, NULL));
      memset(before, 0x22, SPAN);
      model(before, host, expected, gpu);
      EXPECT(memcmp(before, bytes_at(place), SPAN) == 0);
    }
  }
  free(before);
  free(expected);
}

/* NULL: all bytes of a side. */
static void sides_without_gaps_are_named_by_null(void) {
  const pinlane_strided rows = {100, 20, 130, 1, 0};
  memcpy(bytes_at(PAGEABLE), rig.host, SPAN);
  pinlane_layer layer = layer_at(PAGEABLE, 1, SPAN, 2000);
  OK(pinlane_upload_strided(rig.stream, &layer, &rows, NULL, NULL));
  char found[2000], expected[2000];
  const pinlane_strided dense = {100, 20, 100, 1, 0};
  model(expected, &dense, rig.host, &rows);
  OK(pinlane_device_buffer_download_slice(rig.stream, rig.gpu, 13, found, 2000));
  EXPECT(memcmp(found, expected, 2000) == 0);
  OK(pinlane_device_buffer_copy_strided(rig.stream, rig.gpu, 13, 2000, NULL, rig.gpu2, 0, SPAN,
                                        &rows, NULL));
  OK(pinlane_device_buffer_copy_strided(rig.stream, rig.gpu2, 0, SPAN, &rows, rig.gpu, 0, 2000,
                                        NULL, NULL));
  OK(pinlane_device_buffer_download_slice(rig.stream, rig.gpu, 0, found, 2000));
  EXPECT(memcmp(found, expected, 2000) == 0);
  layer = layer_at(PAGEABLE, 1, 2000, 2000);
  OK(pinlane_upload_strided(rig.stream, &layer, NULL, NULL, NULL));
  layer = layer_at(PAGEABLE, 1, 0, 0);
  OK(pinlane_upload_strided(rig.stream, &layer, NULL, NULL, NULL));
}

/* Refused in every direction. */
#define REFUSED_ALL(status, up, down, source, destination)                                         \
  do {                                                                                             \
    REFUSED(status, pinlane_upload_strided(rig.stream, up, source, destination, &ticket));         \
    REFUSED(status, pinlane_download_strided(rig.stream, down, source, destination, &ticket));     \
    REFUSED(status, pinlane_device_buffer_copy_strided(rig.stream, rig.gpu, 0, SPAN, source,       \
                                                       rig.gpu2, 0, SPAN, destination, &ticket));  \
  } while (0)

static void bad_arguments(void) {
  pinlane_ticket *ticket = NULL;
  const pinlane_layer up = layer_at(PAGEABLE, 1, SPAN, SPAN);
  const pinlane_layer down = layer_at(PAGEABLE, 0, SPAN, SPAN);
  const pinlane_strided good = {100, 20, 130, 1, 0};
  pinlane_strided bad = good;
  bad.pitch = 99;
  REFUSED_ALL(INVALID_VALUE, &up, &down, &bad, &good);
  REFUSED_ALL(INVALID_VALUE, &up, &down, &good, &bad);
  bad = good, bad.rows = SIZE_MAX;
  REFUSED_ALL(OUT_OF_RANGE, &up, &down, &bad, &good);
  REFUSED_ALL(OUT_OF_RANGE, &up, &down, &good, &bad);
  bad = good, bad.pitch = (SPAN - 100) / 19 + 1;
  REFUSED_ALL(OUT_OF_RANGE, &up, &down, &bad, &good);
  bad = good, bad.planes = 3, bad.plane_pitch = SIZE_MAX / 2;
  REFUSED_ALL(OUT_OF_RANGE, &up, &down, &bad, &good);
  bad = good, bad.rows = 19;
  REFUSED_ALL(LENGTH_MISMATCH, &up, &down, &bad, &good);
  bad = good, bad.row_bytes = 99;
  REFUSED_ALL(LENGTH_MISMATCH, &up, &down, &good, &bad);
  REFUSED_ALL(LENGTH_MISMATCH, &up, &down, &good, NULL);
  REFUSED_ALL(INVALID_VALUE, &up, &down, (const void *)((const char *)&good + 1), &good);

  REFUSED(INVALID_VALUE, pinlane_upload_strided(rig.stream, NULL, &good, &good, &ticket));
  REFUSED(INVALID_VALUE, pinlane_download_strided(rig.stream, NULL, &good, &good, &ticket));
  REFUSED(INVALID_HANDLE, pinlane_upload_strided(NULL, &up, &good, &good, &ticket));
  REFUSED(INVALID_HANDLE, pinlane_download_strided(NULL, &down, &good, &good, &ticket));
  pinlane_stream *const s = rig.stream;
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_copy_strided(NULL, rig.gpu, 0, SPAN, &good,
                                                             rig.gpu2, 0, SPAN, &good, &ticket));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_copy_strided(s, NULL, 0, SPAN, &good, rig.gpu2, 0,
                                                             SPAN, &good, &ticket));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_copy_strided(s, rig.gpu, 0, SPAN, &good, NULL, 0,
                                                             SPAN, &good, &ticket));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_copy_strided(s, rig.gpu, 0, SPAN, &good, rig.gpu,
                                                            SPAN, SPAN, &good, &ticket));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_copy_strided(s, rig.gpu, LARGE, SPAN, &good, rig.gpu2,
                                                           0, SPAN, &good, &ticket));
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_copy_strided(rig.other_stream, rig.gpu, 0, SPAN,
                                                           &good, rig.gpu2, 0, SPAN, &good, NULL));
  REFUSED(WRONG_DEVICE, pinlane_upload_strided(rig.other_stream, &up, &good, &good, &ticket));
  pinlane_layer foreign = up;
  foreign.src = NULL, foreign.pinned = rig.host;
  REFUSED(INVALID_VALUE, pinlane_upload_strided(s, &foreign, &good, &good, &ticket));
  EXPECT(ticket == NULL);

  /* Between two devices, by a stream of either. */
  OK(pinlane_device_buffer_copy_strided(rig.other_stream, rig.gpu, 0, SPAN, &good, rig.other_gpu, 0,
                                        SPAN, &good, NULL));
}

int main(void) {
  set_up_copies();
  void *memory = NULL;
  OK(pinlane_pool_allocate(rig.pool, SPAN, 64, &memory));
  pool_memory = memory;
  rows_arrive();
  sides_without_gaps_are_named_by_null();
  bad_arguments();
  OK(pinlane_pool_deallocate(rig.pool, memory));
  tear_down_copies();
  return verdict("strided copies");
}
