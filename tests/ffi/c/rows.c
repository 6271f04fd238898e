/* Rows of tables, by their numbers. C11, on a lazy emulated device: copies run only when the
 * program waits. */

#include "copy_rig.h"

_Static_assert(sizeof(pinlane_layer) == 72, "pinlane_layer");
MEMBER(pinlane_layer, src, 0);
MEMBER(pinlane_layer, dst, 8);
MEMBER(pinlane_layer, src_bytes, 16);
MEMBER(pinlane_layer, dst_bytes, 24);
MEMBER(pinlane_layer, buffer, 32);
MEMBER(pinlane_layer, buffer_offset, 40);
MEMBER(pinlane_layer, device_buffer, 48);
MEMBER(pinlane_layer, device_offset, 56);
MEMBER(pinlane_layer, pinned, 64);
_Static_assert(sizeof(pinlane_indices) == 48, "pinlane_indices");
MEMBER(pinlane_indices, size, 0);
MEMBER(pinlane_indices, kind, 8);
MEMBER(pinlane_indices, flags, 12);
MEMBER(pinlane_indices, numbers, 16);
MEMBER(pinlane_indices, count, 24);
MEMBER(pinlane_indices, device_buffer, 32);
MEMBER(pinlane_indices, device_offset, 40);

enum { ROW = 100, ROWS = 40, TABLE = ROW * ROWS, CHOSEN = 7, OFFSET = 24 };

/* Where a table is in host memory. */
enum place { PAGEABLE, PINNED_BUFFER, OF_A_POOL, PINNED_MEMORY, PLACES };

/* Memory of the pool that is named by its address. */
static char *pool_memory;
/* Buffers for numbers on the device. */
static pinlane_device_buffer *numbers_gpu, *more_gpu;

/* The numbers as elements of type `kind`, in `room`. */
static pinlane_indices numbers(int32_t kind, const int *rows, size_t count, void *room) {
  for (size_t i = 0; i < count; i++) {
    if (kind == PINLANE_INDEX_U32) {
      ((uint32_t *)room)[i] = (uint32_t)rows[i];
    } else if (kind == PINLANE_INDEX_I32) {
      ((int32_t *)room)[i] = rows[i];
    } else if (kind == PINLANE_INDEX_U64) {
      ((uint64_t *)room)[i] = (uint64_t)rows[i];
    } else {
      ((int64_t *)room)[i] = rows[i];
    }
  }
  pinlane_indices indices = PINLANE_INDICES_INIT;
  indices.kind = kind;
  indices.numbers = room;
  indices.count = count;
  return indices;
}

/* The same numbers on the device. */
static pinlane_indices on_device(pinlane_indices indices, pinlane_device_buffer *gpu) {
  const size_t each = indices.kind <= PINLANE_INDEX_I32 ? 4 : 8;
  OK(pinlane_device_buffer_upload_slice(rig.stream, indices.numbers, gpu, OFFSET,
                                        indices.count * each, NULL));
  indices.numbers = NULL;
  indices.device_buffer = gpu;
  indices.device_offset = OFFSET;
  return indices;
}

/* The bytes of a table in host memory, to write. */
static char *table_at(enum place place) {
  void *data = NULL;
  if (place == PINNED_BUFFER) {
    OK(pinlane_buffer_write(rig.buffer, &data));
    return (char *)data + OFFSET;
  }
  if (place == PINNED_MEMORY) { /* no call waits for it */
    OK(pinlane_stream_synchronize(rig.stream));
  }
  return place == PAGEABLE ? rig.back : pool_memory;
}

/* The bytes of a table that was written, to read. */
static const char *table_read(enum place place) {
  const void *data = NULL;
  if (place == PINNED_BUFFER) {
    OK(pinlane_buffer_read(rig.buffer, &data));
    return (const char *)data + OFFSET;
  }
  if (place == PINNED_MEMORY) {
    OK(pinlane_stream_synchronize(rig.stream));
  }
  return place == PAGEABLE ? rig.back : pool_memory;
}

/* A layer with its table at `place`, and `rows` rows at an odd offset in `gpu`. */
static pinlane_layer layer_at(enum place place, int up, size_t rows) {
  pinlane_layer layer = {.device_buffer = rig.gpu, .device_offset = 13};
  layer.src_bytes = up ? TABLE : rows * ROW;
  layer.dst_bytes = up ? rows * ROW : TABLE;
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

static int same(const char *one, const char *other, size_t rows) {
  return memcmp(one, other, rows * ROW) == 0;
}

/* Every kind of number, on the host and on the device, with tables in every place. */
static void gathers(void) {
  const int chosen[CHOSEN] = {7, 0, 7, ROWS - 1, 3, 2, 1};
  uint64_t room[CHOSEN];
  char back[CHOSEN * ROW];
  for (int place = PAGEABLE; place < PLACES; place++) {
    memcpy(table_at(place), rig.host, TABLE);
    for (int32_t kind = PINLANE_INDEX_U32; kind <= PINLANE_INDEX_I64; kind++) {
      for (int device = 0; device < 2; device++) {
        pinlane_indices indices = numbers(kind, chosen, CHOSEN, room);
        if (device) {
          indices = on_device(indices, numbers_gpu);
        }
        const pinlane_layer layer = layer_at(place, 1, CHOSEN);
        OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, LARGE, "x", 1, NULL));
        pinlane_ticket *ticket = NULL;
        OK(pinlane_upload_rows(rig.stream, &layer, &indices, &ticket));
        OK(pinlane_ticket_wait(ticket));
        OK(pinlane_ticket_free(ticket));
        OK(pinlane_device_buffer_download_slice(rig.stream, rig.gpu, 13, back, sizeof back));
        for (int i = 0; i < CHOSEN; i++) {
          EXPECT(same(back + i * ROW, rig.host + chosen[i] * ROW, 1));
        }
      }
    }
  }
}

static void scatters(void) {
  const int chosen[CHOSEN] = {7, 0, 8, ROWS - 1, 3, 2, 1};
  uint64_t room[CHOSEN];
  OK(pinlane_device_buffer_upload_slice(rig.stream, rig.host, rig.gpu, 0, LARGE, NULL));
  for (int place = PAGEABLE; place < PLACES; place++) {
    for (int32_t kind = PINLANE_INDEX_U32; kind <= PINLANE_INDEX_I64; kind++) {
      for (int way = 0; way < 3; way++) { /* on the host, on the device, and with a promise */
        memset(table_at(place), 'x', TABLE);
        pinlane_indices indices = numbers(kind, chosen, CHOSEN, room);
        indices.flags = way == 2 ? PINLANE_INDICES_DISTINCT : 0;
        if (way == 1) {
          indices = on_device(indices, numbers_gpu);
        }
        const pinlane_layer layer = layer_at(place, 0, CHOSEN);
        OK(pinlane_download_rows(rig.stream, &layer, &indices, NULL));
        const char *const table = table_read(place);
        size_t untouched = 0;
        for (size_t byte = 0; byte < TABLE; byte++) {
          untouched += table[byte] == 'x';
        }
        EXPECT(untouched >= (size_t)(ROWS - CHOSEN) * ROW);
        for (int i = 0; i < CHOSEN; i++) {
          EXPECT(same(table + chosen[i] * ROW, rig.host + 13 + i * ROW, 1));
        }
      }
    }
  }
}

/* Two layers: one with page-locked and one with pageable memory. One uses the program's own device
 * memory. */
static void two_layers(pinlane_layer *layers, int up, size_t blocks) {
  layers[0] = layer_at(PINNED_BUFFER, up, blocks);
  layers[1] = layer_at(PAGEABLE, up, blocks);
  layers[1].device_buffer = NULL;
  layers[1].device_offset = 0;
  if (up) {
    layers[1].dst = rig.raw + 5;
  } else {
    layers[1].src = rig.raw + 5;
  }
}

static void blocks(void) {
  enum { PLACED = 10, MOVED = 3 };
  const int from_rows[MOVED] = {30, 3, 30}, to_rows[MOVED] = {0, 9, 4};
  uint64_t from_room[MOVED], to_room[PLACED];
  char back[PLACED * ROW];
  pinlane_layer layers[2];
  memcpy(table_at(PINNED_BUFFER), rig.host, TABLE);
  memcpy(table_at(PAGEABLE), rig.host + TABLE, TABLE);
  for (int device = 0; device < 4; device++) {
    OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, LARGE, "x", 1, NULL));
    OK(pinlane_device_buffer_fill(rig.stream, rig.lent, 0, LARGE, "x", 1, NULL));
    pinlane_indices from = numbers(PINLANE_INDEX_I64, from_rows, MOVED, from_room);
    pinlane_indices to = numbers(PINLANE_INDEX_U32, to_rows, MOVED, to_room);
    from = device & 1 ? on_device(from, numbers_gpu) : from;
    to = device & 2 ? on_device(to, more_gpu) : to;
    two_layers(layers, 1, PLACED);
    OK(pinlane_upload_blocks(rig.stream, layers, 2, ROW, &from, &to, NULL));
    for (int layer = 0; layer < 2; layer++) {
      pinlane_device_buffer *const gpu = layer == 0 ? rig.gpu : rig.lent;
      const size_t at = layer == 0 ? 13 : 5;
      OK(pinlane_device_buffer_download_slice(rig.stream, gpu, at, back, sizeof back));
      for (int i = 0; i < MOVED; i++) {
        const char *const sent = rig.host + layer * TABLE + from_rows[i] * ROW;
        EXPECT(same(back + to_rows[i] * ROW, sent, 1));
      }
      EXPECT(back[ROW] == 'x' && back[4 * ROW - 1] == 'x' && back[9 * ROW - 1] == 'x');
    }
  }

  /* All blocks of the device, in order, to some of the host, and vice versa. */
  const int spread[PLACED] = {39, 1, 5, 4, 3, 20, 7, 8, 9, 10};
  pinlane_indices chosen = numbers(PINLANE_INDEX_I32, spread, PLACED, to_room);
  OK(pinlane_device_buffer_upload_slice(rig.stream, rig.host + 7, rig.gpu, 13, LARGE - 13, NULL));
  OK(pinlane_device_buffer_upload_slice(rig.stream, rig.host + 8, rig.lent, 5, LARGE - 8, NULL));
  memset(table_at(PINNED_BUFFER), 'x', TABLE);
  memset(table_at(PAGEABLE), 'x', TABLE);
  two_layers(layers, 0, PLACED);
  pinlane_ticket *ticket = NULL;
  OK(pinlane_download_blocks(rig.stream, layers, 2, ROW, NULL, &chosen, &ticket));
  OK(pinlane_ticket_wait(ticket));
  OK(pinlane_ticket_free(ticket));
  for (int i = 0; i < PLACED; i++) {
    const size_t at = (size_t)spread[i] * ROW;
    EXPECT(same(table_read(PINNED_BUFFER) + at, rig.host + 7 + i * ROW, 1));
    EXPECT(same(table_read(PAGEABLE) + at, rig.host + 8 + i * ROW, 1));
  }
  EXPECT(table_read(PAGEABLE)[0] == 'x' && table_read(PINNED_BUFFER)[2 * ROW] == 'x');

  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, LARGE, "x", 1, NULL));
  two_layers(layers, 1, PLACED);
  OK(pinlane_upload_blocks(rig.stream, layers, 2, ROW, &chosen, NULL, NULL));
  OK(pinlane_device_buffer_download_slice(rig.stream, rig.gpu, 13, back, sizeof back));
  EXPECT(same(back, rig.host + 7, PLACED));

  /* An empty call. */
  OK(pinlane_upload_blocks(rig.stream, NULL, 0, ROW, NULL, NULL, NULL));
  OK(pinlane_download_blocks(rig.stream, NULL, 0, 0, &chosen, NULL, &ticket));
  OK(pinlane_ticket_free(ticket));
  chosen.count = 0;
  chosen.numbers = NULL;
  OK(pinlane_download_blocks(rig.stream, layers, 0, ROW, &chosen, &chosen, NULL));
  const pinlane_layer empty = {.src_bytes = TABLE, .src = rig.host};
  OK(pinlane_upload_rows(rig.stream, &empty, &chosen, NULL));
}

/* A number on the device that is outside the table, and one that occurs twice. */
static void numbers_that_only_the_device_knows(void) {
  const int outside[3] = {2, -1, ROWS}, twice[4] = {4, 5, 4, 6};
  uint64_t room[4];
  char back[3 * ROW];
  for (int place = PAGEABLE; place < PLACES; place++) {
    memcpy(table_at(place), rig.host, TABLE);
    OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, LARGE, "x", 1, NULL));
    pinlane_layer layer = layer_at(place, 1, 3);
    for (int32_t kind = PINLANE_INDEX_U32; kind <= PINLANE_INDEX_I64; kind++) {
      const pinlane_indices indices = on_device(numbers(kind, outside, 3, room), numbers_gpu);
      OK(pinlane_upload_rows(rig.stream, &layer, &indices, NULL));
      OK(pinlane_device_buffer_download_slice(rig.stream, rig.gpu, 13, back, sizeof back));
      EXPECT(same(back, rig.host + 2 * ROW, 1));
      EXPECT(back[ROW] == 'x' && back[2 * ROW - 1] == 'x' && back[3 * ROW - 1] == 'x');
    }

    pinlane_indices indices = numbers(PINLANE_INDEX_U64, twice, 4, room);
    indices = on_device(indices, numbers_gpu);
    layer = layer_at(place, 0, 4);
    if (place == PINNED_BUFFER || place == PINNED_MEMORY) {
      OK(pinlane_download_rows(rig.stream, &layer, &indices, NULL));
    } else { /* threads might write it */
      REFUSED(INVALID_VALUE, pinlane_download_rows(rig.stream, &layer, &indices, NULL));
    }
  }
  /* A broken promise. */
  pinlane_indices promised = numbers(PINLANE_INDEX_U32, twice, 4, room);
  promised.flags = PINLANE_INDICES_DISTINCT;
  pinlane_layer layer = layer_at(PINNED_BUFFER, 0, 4);
  OK(pinlane_device_buffer_upload_slice(rig.stream, rig.host, rig.gpu, 13, 4 * ROW, NULL));
  OK(pinlane_download_rows(rig.stream, &layer, &promised, NULL));
  const char *const table = table_read(PINNED_BUFFER);
  EXPECT(same(table + 5 * ROW, rig.host + ROW, 1));
  EXPECT(same(table + 4 * ROW, rig.host, 1) || same(table + 4 * ROW, rig.host + 2 * ROW, 1));
  layer = layer_at(PAGEABLE, 0, 4);
  REFUSED(INVALID_VALUE, pinlane_download_rows(rig.stream, &layer, &promised, NULL));
}

/* Refused in either direction. */
#define REFUSED_BOTH(status, up, down, indices)                                                    \
  do {                                                                                             \
    REFUSED(status, pinlane_upload_rows(rig.stream, up, indices, &ticket));                        \
    REFUSED(status, pinlane_download_rows(rig.stream, down, indices, &ticket));                    \
  } while (0)

static void bad_numbers(void) {
  const int chosen[4] = {0, 1, 2, ROWS}, twice[4] = {3, 1, 3, 2};
  uint64_t room[5];
  pinlane_ticket *ticket = NULL;
  for (int place = PAGEABLE; place < PLACES; place++) {
    const pinlane_layer up = layer_at(place, 1, 4), down = layer_at(place, 0, 4);
    for (int32_t kind = PINLANE_INDEX_U32; kind <= PINLANE_INDEX_I64; kind++) {
      pinlane_indices indices = numbers(kind, chosen, 4, room);
      REFUSED_BOTH(OUT_OF_RANGE, &up, &down, &indices);
      EXPECT(strstr(pinlane_last_error(), "index 3 names row 40") != NULL);
      const int negative[4] = {0, 1, -1, 2};
      indices = numbers(kind, negative, 4, room);
      REFUSED_BOTH(OUT_OF_RANGE, &up, &down, &indices);
      indices = numbers(kind, twice, 4, room);
      REFUSED(INVALID_VALUE, pinlane_download_rows(rig.stream, &down, &indices, &ticket));
      EXPECT(strstr(pinlane_last_error(), "index 2 names row 3") != NULL);
      REFUSED(INVALID_VALUE, pinlane_upload_blocks(rig.stream, &up, 1, ROW, NULL, &indices, NULL));
    }
  }
  const pinlane_layer up = layer_at(PAGEABLE, 1, 4), down = layer_at(PAGEABLE, 0, 4);
  const pinlane_indices good = numbers(PINLANE_INDEX_U32, chosen, 3, room);
  REFUSED_BOTH(INVALID_VALUE, &up, &down, NULL);
  pinlane_indices bad = good;
  bad.size--;
  REFUSED_BOTH(INVALID_VALUE, &up, &down, &bad);
  bad = good;
  bad.kind = 4;
  REFUSED_BOTH(INVALID_VALUE, &up, &down, &bad);
  bad.kind = -1;
  REFUSED_BOTH(INVALID_VALUE, &up, &down, &bad);
  bad = good;
  bad.flags = 2;
  REFUSED_BOTH(INVALID_VALUE, &up, &down, &bad);
  bad = good;
  bad.numbers = NULL;
  REFUSED_BOTH(INVALID_VALUE, &up, &down, &bad);
  bad.numbers = (char *)room + 2;
  REFUSED_BOTH(INVALID_VALUE, &up, &down, &bad);
  bad = good;
  bad.count = SIZE_MAX;
  REFUSED_BOTH(INVALID_VALUE, &up, &down, &bad);
  bad = good;
  bad.device_buffer = numbers_gpu;
  REFUSED_BOTH(INVALID_VALUE, &up, &down, &bad);
  bad.numbers = NULL;
  bad.device_offset = 2;
  REFUSED_BOTH(INVALID_VALUE, &up, &down, &bad);
  bad.device_offset = SIZE_MAX;
  REFUSED_BOTH(OUT_OF_RANGE, &up, &down, &bad);
  bad.device_offset = LARGE - 8;
  REFUSED_BOTH(OUT_OF_RANGE, &up, &down, &bad);
  bad.device_offset = 0;
  bad.count = SIZE_MAX;
  REFUSED_BOTH(OUT_OF_RANGE, &up, &down, &bad);
  bad.device_buffer = (void *)rig.buffer;
  REFUSED_BOTH(INVALID_HANDLE, &up, &down, &bad);
  bad.device_buffer = rig.other_gpu;
  bad.count = 4;
  REFUSED_BOTH(WRONG_DEVICE, &up, &down, &bad);
  bad.device_buffer = rig.gpu; /* which the upload writes */
  REFUSED(INVALID_VALUE, pinlane_upload_rows(rig.stream, &up, &bad, &ticket));
  REFUSED(INVALID_VALUE, pinlane_upload_blocks(rig.stream, &up, 1, ROW, &good, &bad, &ticket));
  REFUSED(INVALID_VALUE, pinlane_upload_blocks(rig.stream, &up, 1, ROW, &bad, &good, &ticket));
  EXPECT(ticket == NULL);
}

static void bad_tables(void) {
  const int chosen[4] = {0, 1, 2, 3};
  uint64_t room[4];
  pinlane_ticket *ticket = NULL;
  const pinlane_indices four = numbers(PINLANE_INDEX_U32, chosen, 4, room);
  const pinlane_layer up = layer_at(PAGEABLE, 1, 4), down = layer_at(PAGEABLE, 0, 4);
  pinlane_stream *const s = rig.stream;
  REFUSED(INVALID_HANDLE, pinlane_upload_rows(NULL, &up, &four, &ticket));
  REFUSED(INVALID_HANDLE, pinlane_download_rows(NULL, &down, &four, &ticket));
  REFUSED(INVALID_HANDLE, pinlane_upload_blocks(NULL, &up, 1, ROW, NULL, NULL, &ticket));
  REFUSED(INVALID_HANDLE, pinlane_download_blocks(NULL, &down, 1, ROW, NULL, NULL, &ticket));
  REFUSED_BOTH(INVALID_VALUE, NULL, NULL, &four);
  REFUSED(INVALID_VALUE, pinlane_upload_blocks(s, NULL, 1, ROW, &four, &four, &ticket));
  REFUSED(INVALID_VALUE, pinlane_upload_blocks(s, &up, SIZE_MAX, ROW, &four, &four, &ticket));
  REFUSED(INVALID_VALUE, pinlane_upload_rows(s, &up, &four, (void *)((char *)&ticket + 1)));

  pinlane_layer bad = up, bad_down = down;
  bad.pinned = bad_down.pinned = rig.host;
  REFUSED_BOTH(INVALID_VALUE, &bad, &bad_down, &four);
  bad = up, bad_down = down;
  bad.src = bad_down.dst = NULL;
  REFUSED_BOTH(INVALID_VALUE, &bad, &bad_down, &four);
  EXPECT(strstr(pinlane_last_error(), "layer 0: ") != NULL);
  bad = up, bad_down = down;
  bad.buffer = bad_down.buffer = rig.buffer;
  REFUSED_BOTH(INVALID_VALUE, &bad, &bad_down, &four);
  bad = up, bad_down = down;
  bad.dst = rig.raw;
  bad_down.src = rig.raw;
  REFUSED_BOTH(INVALID_VALUE, &bad, &bad_down, &four);
  bad = up, bad_down = down;
  bad.device_offset = bad_down.device_offset = LARGE - 4 * ROW + 1;
  REFUSED_BOTH(OUT_OF_RANGE, &bad, &bad_down, &four);
  bad = layer_at(PINNED_BUFFER, 1, 4), bad_down = layer_at(PINNED_BUFFER, 0, 4);
  bad.buffer_offset = bad_down.buffer_offset = PINNED - TABLE + 1;
  REFUSED_BOTH(OUT_OF_RANGE, &bad, &bad_down, &four);
  bad.buffer = bad_down.buffer = (void *)rig.gpu;
  REFUSED_BOTH(INVALID_HANDLE, &bad, &bad_down, &four);
  bad = up, bad_down = down;
  bad.device_buffer = bad_down.device_buffer = rig.other_gpu;
  REFUSED_BOTH(WRONG_DEVICE, &bad, &bad_down, &four);

  /* Lengths that are not whole rows. */
  bad = up, bad_down = down;
  bad.dst_bytes = bad_down.src_bytes = 4 * ROW - 1;
  REFUSED_BOTH(LENGTH_MISMATCH, &bad, &bad_down, &four);
  bad = up, bad_down = down;
  bad.src_bytes = bad_down.dst_bytes = TABLE - 1;
  REFUSED_BOTH(LENGTH_MISMATCH, &bad, &bad_down, &four);
  pinlane_indices three = four;
  three.count = 3;
  REFUSED(LENGTH_MISMATCH, pinlane_upload_blocks(s, &up, 1, ROW, &three, &four, &ticket));
  REFUSED(LENGTH_MISMATCH, pinlane_upload_blocks(s, &up, 1, ROW, NULL, NULL, &ticket));
  REFUSED(LENGTH_MISMATCH, pinlane_download_blocks(s, &down, 1, 0, &four, &four, &ticket));
  REFUSED(LENGTH_MISMATCH, pinlane_download_blocks(s, &down, 1, SIZE_MAX, &four, &four, &ticket));
  pinlane_layer layers[2] = {up, up};
  layers[1].device_offset += 4 * ROW;
  layers[1].dst_bytes = 5 * ROW;
  REFUSED(LENGTH_MISMATCH, pinlane_upload_blocks(s, layers, 2, ROW, &four, &four, &ticket));

  /* Destinations that overlap. */
  layers[1] = up;
  layers[1].device_offset += 4 * ROW - 1;
  REFUSED(INVALID_VALUE, pinlane_upload_blocks(s, layers, 2, ROW, &four, &four, &ticket));
  layers[1].device_offset++;
  OK(pinlane_upload_blocks(s, layers, 2, ROW, &four, &four, NULL));
  layers[0] = layers[1] = down;
  REFUSED(INVALID_VALUE, pinlane_download_blocks(s, layers, 2, ROW, &four, &four, &ticket));
  layers[1].dst = rig.back + TABLE; /* from the same rows, to a table of its own */
  OK(pinlane_download_blocks(s, layers, 2, ROW, &four, &four, NULL));
  EXPECT(ticket == NULL);
}

int main(void) {
  set_up_copies();
  void *memory = NULL;
  OK(pinlane_pool_allocate(rig.pool, TABLE, 64, &memory));
  pool_memory = memory;
  OK(pinlane_device_buffer_alloc(rig.device, LARGE, &numbers_gpu));
  OK(pinlane_device_buffer_alloc(rig.device, BYTES, &more_gpu));
  gathers();
  scatters();
  blocks();
  numbers_that_only_the_device_knows();
  bad_numbers();
  bad_tables();
  OK(pinlane_device_buffer_free(numbers_gpu));
  OK(pinlane_device_buffer_free(more_gpu));
  OK(pinlane_pool_deallocate(rig.pool, memory));
  tear_down_copies();
  return verdict("rows");
}
