/* Tensors with gaps as buffers and rows. C11, on a lazy emulated device: work that nothing waits
 * for stays pending. */

#include "dlpack_rig.h"

/* Tensors of 16-bit elements in 1920 of them, and their rows in bytes. */
static const struct layout {
  int32_t ndim;
  int64_t shape[4], strides[4];
  pinlane_strided rows;
} layouts[] = {
    {2, {30, 20}, {60, 1}, {40, 30, 120, 1, 0}},
    /* One column. */
    {2, {30, 1}, {60, 1}, {2, 30, 120, 1, 0}},
    {1, {30}, {60}, {2, 30, 120, 1, 0}},
    /* Every third element of every second row, and transposed. */
    {2, {15, 20}, {120, 3}, {2, 20, 6, 15, 240}},
    {2, {20, 30}, {1, 60}, {2, 30, 120, 20, 2}},
    {3, {3, 5, 20}, {600, 40, 1}, {40, 5, 80, 3, 1200}},
    /* Two dimensions that are contiguous, and two that are one. */
    {4, {4, 2, 3, 5}, {400, 200, 5, 1}, {30, 8, 400, 1, 0}},
    /* Heads and positions exchanged. */
    {3, {6, 10, 16}, {16, 112, 1}, {32, 10, 224, 6, 32}},
    /* No gaps. */
    {2, {30, 20}, {20, 1}, {1200, 1, 1200, 1, 0}},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts, BEHIND = 256 };

static struct producer *produce_layout(const struct layout *layout) {
  struct producer *made = produce();
  made->managed.tensor.dtype = (data_type){1, 16, 1};
  made->managed.tensor.ndim = layout->ndim;
  memcpy(made->shape, layout->shape, sizeof made->shape);
  memcpy(made->strides, layout->strides, sizeof made->strides);
  for (size_t at = 0; at < BYTES; at++) {
    made->memory[at] = (char)(at * 7 + at / 256);
  }
  return made;
}

/* The byte of a tensor's memory that holds byte `at` of its elements in their order. */
static size_t place_of(const struct layout *layout, size_t at) {
  size_t place = at % 2, element = at / 2;
  for (int32_t dimension = layout->ndim - 1; dimension >= 0; dimension--) {
    const size_t length = (size_t)layout->shape[dimension];
    place += 2 * (element % length) * (size_t)layout->strides[dimension];
    element /= length;
  }
  return place;
}

static int same_rows(const pinlane_strided *one, const pinlane_strided *other) {
  return one->row_bytes == other->row_bytes && one->rows == other->rows &&
         one->pitch == other->pitch && one->planes == other->planes &&
         one->plane_pitch == other->plane_pitch;
}

static size_t bytes_of(const pinlane_strided *rows) {
  return rows->row_bytes * rows->rows * rows->planes;
}

/* From the first element to behind the last one. */
static size_t span_of(const pinlane_strided *rows) {
  return (rows->planes - 1) * rows->plane_pitch + (rows->rows - 1) * rows->pitch + rows->row_bytes;
}

/* Checks the bytes of the device against the elements of a tensor. */
static void expect_elements(const struct layout *layout, const char *first) {
  static char found[BYTES];
  const size_t bytes = bytes_of(&layout->rows);
  OK(pinlane_device_buffer_download_slice(rig.stream, rig.gpu, 0, found, bytes));
  int same = 1;
  for (size_t at = 0; at < bytes; at++) {
    same = same && found[at] == first[place_of(layout, at)];
  }
  EXPECT(same);
}

typedef pinlane_status import(const pinlane_device *, managed *, pinlane_buffer **,
                              pinlane_strided *);

/* The elements go to the device in their order. */
static void a_tensor_becomes_a_buffer_and_rows(import from_dlpack, uint64_t flags) {
  for (size_t n = 0; n < LAYOUTS; n++) {
    struct producer *const producer = produce_layout(&layouts[n]);
    producer->managed.flags = flags;
    pinlane_buffer *buffer = NULL;
    pinlane_strided rows = {0, 0, 0, 0, 0};
    OK(from_dlpack(rig.device, &producer->managed, &buffer, &rows));
    EXPECT(same_rows(&rows, &layouts[n].rows));
    size_t bytes = 0;
    void *address = NULL;
    OK(pinlane_buffer_size(buffer, &bytes));
    OK(pinlane_buffer_address(buffer, &address));
    EXPECT(bytes == span_of(&rows) && address == producer->memory + BEHIND);

    const pinlane_layer layer = {.buffer = buffer,
                                 .src_bytes = bytes,
                                 .device_buffer = rig.gpu,
                                 .dst_bytes = bytes_of(&rows)};
    pinlane_ticket *ticket = NULL;
    OK(pinlane_upload_strided(rig.stream, &layer, &rows, NULL, &ticket));
    EXPECT(is_done(ticket) == 0 && producer->deleted == 0);
    OK(pinlane_buffer_free(buffer)); /* waits for the copy */
    EXPECT(is_done(ticket) == 1 && producer->deleted == 1);
    OK(pinlane_ticket_free(ticket));
    expect_elements(&layouts[n], producer->memory + BEHIND);
    free(producer);
  }
}

/* And back to the rows of a tensor, whose gaps stay. */
static void rows_of_a_tensor_are_written(void) {
  for (size_t n = 0; n < LAYOUTS; n++) {
    struct producer *const producer = produce_layout(&layouts[n]);
    static char expected[BYTES];
    memcpy(expected, producer->memory, BYTES);
    pinlane_buffer *buffer = NULL;
    pinlane_strided rows;
    OK(pinlane_buffer_from_dlpack_strided(rig.device, &producer->managed, &buffer, &rows));
    OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, bytes_of(&rows), "\x5b", 1, NULL));
    const pinlane_layer layer = {.device_buffer = rig.gpu,
                                 .src_bytes = bytes_of(&rows),
                                 .buffer = buffer,
                                 .dst_bytes = span_of(&rows)};
    OK(pinlane_download_strided(rig.stream, &layer, NULL, &rows, NULL));
    OK(pinlane_buffer_free(buffer));
    for (size_t at = 0; at < bytes_of(&rows); at++) {
      expected[BEHIND + place_of(&layouts[n], at)] = 0x5b;
    }
    EXPECT(producer->deleted == 1 && memcmp(producer->memory, expected, BYTES) == 0);
    free(producer);
  }
}

/* Its first use waits for the stream that the producer was given. */
static void a_tensor_on_the_device_becomes_a_buffer_and_rows(void) {
  for (size_t n = 0; n < LAYOUTS; n++) {
    const struct layout *const layout = &layouts[n];
    pinlane_stream *other = NULL;
    OK(pinlane_stream_create(rig.device, NULL, &other));
    struct producer *const contents = produce_layout(layout);
    pinlane_device_buffer *gpu = NULL;
    OK(pinlane_device_buffer_alloc(rig.device, BYTES - BEHIND, &gpu));
    const char *const first = contents->memory + BEHIND;
    OK(pinlane_device_buffer_upload_slice(rig.stream, first, gpu, 0, BYTES - BEHIND, NULL));
    pinlane_dlpack_options options = PINLANE_DLPACK_OPTIONS_INIT;
    options.bits = 16;
    options.ndim = layout->ndim;
    options.shape = layout->shape;
    options.strides = layout->strides;
    options.stream = other;
    managed *tensor = NULL;
    OK(pinlane_device_buffer_into_dlpack(gpu, &options, &tensor));
    pinlane_device_buffer *rest = NULL;
    pinlane_strided rows = {9, 9, 9, 9, 9};
    REFUSED(WRONG_DEVICE,
            pinlane_device_buffer_from_dlpack_strided(rig.other_stream, tensor, &rest, &rows));
    EXPECT(rest == NULL && rows.row_bytes == 9);
    pinlane_ticket *work = NULL;
    OK(pinlane_stream_busy(other, 1000, &work));
    OK(pinlane_device_buffer_from_dlpack_strided(other, tensor, &rest, &rows));
    EXPECT(same_rows(&rows, &layout->rows));
    size_t bytes = 0;
    OK(pinlane_device_buffer_size(rest, &bytes));
    EXPECT(bytes == span_of(&rows));
    OK(pinlane_device_buffer_copy_strided(rig.stream, rest, 0, bytes, &rows, rig.gpu, 0,
                                          bytes_of(&rows), NULL, NULL));
    EXPECT(is_done(work) == 0);
    expect_elements(layout, first);
    EXPECT(is_done(work) == 1);
    OK(pinlane_device_buffer_free(rest));
    OK(pinlane_ticket_free(work));
    OK(pinlane_stream_free(other));
    free(contents);
  }
}

/* Also elements of less than a byte, and none. */
static void a_tensor_without_gaps_is_one_row(void) {
  const struct {
    int32_t ndim;
    int64_t length;
    uint8_t bits;
    uint64_t flags;
    size_t bytes;
  } cases[] = {{2, 100, 32, 0, 800},
               {2, 7, 4, 0, 7},
               {2, 7, 4, PADDED, 14},
               {2, 0, 32, 0, 0},
               {0, 100, 32, 0, 4}};
  for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
    struct producer *const producer = produce();
    producer->managed.flags = cases[n].flags;
    producer->managed.tensor.ndim = cases[n].ndim;
    producer->managed.tensor.dtype.bits = cases[n].bits;
    producer->shape[1] = producer->strides[0] = cases[n].length;
    if (n % 2 == 0) {
      producer->managed.tensor.strides = NULL;
    }
    pinlane_buffer *buffer = NULL;
    pinlane_strided rows = {9, 9, 9, 9, 9};
    OK(pinlane_buffer_from_dlpack_strided(rig.device, &producer->managed, &buffer, &rows));
    size_t bytes = 9;
    OK(pinlane_buffer_size(buffer, &bytes));
    EXPECT(bytes == cases[n].bytes && rows.row_bytes == bytes);
    EXPECT(rows.rows == 1 && rows.planes == 1);
    const pinlane_layer layer = {
        .buffer = buffer, .src_bytes = bytes, .device_buffer = rig.gpu, .dst_bytes = bytes};
    OK(pinlane_upload_strided(rig.stream, &layer, &rows, NULL, NULL));
    OK(pinlane_buffer_free(buffer));
    EXPECT(producer->deleted == 1);
    free(producer);
  }
  /* Rows of padded elements. */
  struct producer *const producer = produce();
  producer->managed.flags = PADDED;
  producer->managed.tensor.dtype.bits = 4;
  producer->strides[0] = 150;
  pinlane_buffer *buffer = NULL;
  pinlane_strided rows;
  OK(pinlane_buffer_from_dlpack_strided(rig.device, &producer->managed, &buffer, &rows));
  EXPECT(same_rows(&rows, &(pinlane_strided){100, 2, 150, 1, 0}));
  OK(pinlane_buffer_free(buffer));
  free(producer);
}

static void what_is_refused_stays_the_callers(import from_dlpack) {
  struct producer *const producer = produce(), good = *producer;
  managed *const tensor = &producer->managed;
  pinlane_buffer *buffer = (pinlane_buffer *)&rig;
  pinlane_strided rows = {9, 9, 9, 9, 9};
#define BAD(words, change)                                                                         \
  *producer = good;                                                                                \
  change;                                                                                          \
  EXPECT(from_dlpack(rig.device, tensor, &buffer, &rows) == PINLANE_STATUS_INVALID_VALUE);         \
  EXPECT(strstr(pinlane_last_error(), words) != NULL)
  const char *const apart = "is not of rows that lie apart";
  BAD(apart, producer->strides[0] = -100);
  BAD(apart, producer->strides[1] = -1);
  BAD(apart, producer->strides[0] = 99); /* rows that overlap */
  BAD(apart, producer->strides[0] = 0);
  BAD(apart, (producer->strides[0] = 3, producer->strides[1] = 2)); /* columns that overlap */
  BAD(apart, (producer->strides[0] = 0, producer->strides[1] = 0));
  BAD(apart, (producer->strides[0] = -2, tensor->tensor.ndim = 1));
  BAD("gaps between elements that share bytes",
      (tensor->tensor.dtype.bits = 4, producer->strides[0] = 2, tensor->tensor.ndim = 1));
  BAD(apart, producer->strides[0] = INT64_MAX);
  /* More dimensions than rows have. */
  BAD(apart, (memcpy(producer->shape, (int64_t[]){2, 2, 2, 2}, sizeof good.shape),
              memcpy(producer->strides, (int64_t[]){200, 50, 10, 1}, sizeof good.strides),
              tensor->tensor.ndim = 4));
  BAD("gaps between elements that share bytes",
      (tensor->tensor.dtype.bits = 4, producer->strides[0] = 150));
  BAD("DLPack 2", tensor->version.major = 2);
  BAD("not in host memory", tensor->tensor.device.device_type = 2);
  BAD("at NULL", tensor->tensor.data = NULL);
  BAD("-1 dimensions", tensor->tensor.ndim = -1);
  BAD("flags", tensor->flags = 8);
  BAD("that memory can hold", producer->shape[1] = INT64_MAX);
  BAD("address space", tensor->tensor.byte_offset = UINT64_MAX);
#undef BAD
  *producer = good;
  producer->strides[0] = 150;
  pinlane_strided *const odd = (pinlane_strided *)((char *)&rows + 1);
  EXPECT(from_dlpack(rig.device, NULL, &buffer, &rows) == PINLANE_STATUS_INVALID_VALUE);
  EXPECT(strstr(pinlane_last_error(), "tensor is NULL") != NULL);
  EXPECT(from_dlpack(rig.device, tensor, NULL, &rows) == PINLANE_STATUS_INVALID_VALUE);
  EXPECT(strstr(pinlane_last_error(), "buffer is NULL") != NULL);
  EXPECT(from_dlpack(rig.device, tensor, &buffer, NULL) == PINLANE_STATUS_INVALID_VALUE);
  EXPECT(strstr(pinlane_last_error(), "rows is NULL") != NULL);
  EXPECT(from_dlpack(rig.device, tensor, &buffer, odd) == PINLANE_STATUS_INVALID_VALUE);
  EXPECT(from_dlpack(NULL, tensor, &buffer, &rows) == PINLANE_STATUS_INVALID_HANDLE);

  /* Already registered: one byte of a gap. */
  pinlane_buffer *first = NULL;
  OK(pinlane_buffer_register(rig.device, producer->memory + 256 + 420, 1, &first));
  EXPECT(from_dlpack(rig.device, tensor, &buffer, &rows) == PINLANE_STATUS_INVALID_VALUE);
  OK(pinlane_buffer_free(first));
  EXPECT(buffer == (pinlane_buffer *)&rig && producer->deleted == 0);
  EXPECT(same_rows(&rows, &(pinlane_strided){9, 9, 9, 9, 9}));

  /* None of that has taken the tensor. */
  OK(from_dlpack(rig.device, tensor, &buffer, &rows));
  EXPECT(same_rows(&rows, &(pinlane_strided){400, 2, 600, 1, 0}));
  OK(pinlane_buffer_free(buffer));
  EXPECT(producer->deleted == 1);
  free(producer);
}

static void what_is_refused_on_the_device_stays_the_callers(void) {
  pinlane_dlpack_options options = PINLANE_DLPACK_OPTIONS_INIT;
  const int64_t shape[2] = {4, 100};
  options.shape = shape;
  options.ndim = 2;
  options.stream = rig.stream;
  pinlane_device_buffer *gpu = NULL;
  managed *tensor = NULL;
  pinlane_strided rows = {9, 9, 9, 9, 9};
  OK(pinlane_device_buffer_alloc(rig.device, BYTES, &gpu));
  OK(pinlane_device_buffer_into_dlpack(gpu, &options, &tensor));
  gpu = NULL;
  const int64_t wrong[] = {-100, 0, 99, 1, INT64_MAX};
  for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
    tensor->tensor.strides[0] = wrong[n];
    REFUSED(INVALID_VALUE,
            pinlane_device_buffer_from_dlpack_strided(rig.stream, tensor, &gpu, &rows));
  }
  tensor->tensor.strides[0] = 200;
  tensor->flags = READ_ONLY;
  REFUSED(INVALID_VALUE,
          pinlane_device_buffer_from_dlpack_strided(rig.stream, tensor, &gpu, &rows));
  tensor->flags = 0;
  REFUSED(INVALID_VALUE, pinlane_device_buffer_from_dlpack(rig.stream, tensor, &gpu));
  EXPECT(strstr(pinlane_last_error(), "import it with its strides") != NULL);
  REFUSED(INVALID_VALUE, pinlane_device_buffer_from_dlpack_strided(rig.stream, NULL, &gpu, &rows));
  REFUSED(INVALID_VALUE,
          pinlane_device_buffer_from_dlpack_strided(rig.stream, tensor, NULL, &rows));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_from_dlpack_strided(rig.stream, tensor, &gpu, NULL));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_from_dlpack_strided(NULL, tensor, &gpu, &rows));
  pinlane_buffer *host = NULL;
  REFUSED(INVALID_VALUE, pinlane_buffer_from_dlpack_strided(rig.device, tensor, &host, &rows));
  EXPECT(gpu == NULL && host == NULL && rows.row_bytes == 9);
  OK(pinlane_device_buffer_from_dlpack_strided(rig.stream, tensor, &gpu, &rows));
  EXPECT(same_rows(&rows, &(pinlane_strided){100, 4, 200, 1, 0}));
  OK(pinlane_device_buffer_free(gpu));
}

/* It is no buffer to write to. */
static void a_read_only_tensor_with_gaps_is_a_source(void) {
  struct producer *const producer = produce();
  producer->managed.flags = READ_ONLY;
  producer->strides[0] = 150;
  pinlane_buffer *buffer = NULL;
  pinlane_strided rows;
  REFUSED(INVALID_VALUE,
          pinlane_buffer_from_dlpack_strided(rig.device, &producer->managed, &buffer, &rows));
  EXPECT(strstr(pinlane_last_error(), "the tensor is read-only") != NULL);
  OK(pinlane_buffer_from_dlpack_read_only_strided(rig.device, &producer->managed, &buffer, &rows));
  const pinlane_layer layer = {
      .device_buffer = rig.gpu, .src_bytes = 800, .buffer = buffer, .dst_bytes = 1000};
  REFUSED(INVALID_VALUE, pinlane_download_strided(rig.stream, &layer, NULL, &rows, NULL));
  EXPECT(strstr(pinlane_last_error(), "the buffer is only read") != NULL);
  OK(pinlane_buffer_free(buffer));
  EXPECT(producer->deleted == 1);
  free(producer);
}

int main(void) {
  set_up(BYTES, BYTES);
  a_tensor_becomes_a_buffer_and_rows(pinlane_buffer_from_dlpack_strided, 0);
  a_tensor_becomes_a_buffer_and_rows(pinlane_buffer_from_dlpack_read_only_strided, 0);
  a_tensor_becomes_a_buffer_and_rows(pinlane_buffer_from_dlpack_read_only_strided, READ_ONLY);
  rows_of_a_tensor_are_written();
  a_tensor_on_the_device_becomes_a_buffer_and_rows();
  a_tensor_without_gaps_is_one_row();
  what_is_refused_stays_the_callers(pinlane_buffer_from_dlpack_strided);
  what_is_refused_stays_the_callers(pinlane_buffer_from_dlpack_read_only_strided);
  what_is_refused_on_the_device_stays_the_callers();
  a_read_only_tensor_with_gaps_is_a_source();
  tear_down();
  return verdict("tensors with gaps");
}
