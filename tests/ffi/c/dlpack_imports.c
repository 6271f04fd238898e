/* Tensors of DLPack as buffers. C11, on a lazy emulated device: work that nothing waits for stays
 * pending. */

#include "dlpack_rig.h"

static void a_tensor_becomes_a_buffer(void) {
  struct producer *producer = produce();
  memset(producer->memory, 3, BYTES);
  pinlane_buffer *buffer = NULL;
  OK(pinlane_buffer_from_dlpack(rig.device, &producer->managed, &buffer));
  size_t bytes = 0;
  void *address = NULL;
  OK(pinlane_buffer_size(buffer, &bytes));
  OK(pinlane_buffer_address(buffer, &address));
  EXPECT(bytes == 800 && address == producer->memory + 256);
  pinlane_ticket *filled = NULL, *landed = NULL;
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, 800, "\x09", 1, &filled));
  OK(pinlane_device_buffer_download(rig.stream, rig.gpu, 0, buffer, 0, 800, &landed));
  EXPECT(is_done(landed) == 0 && producer->deleted == 0);
  OK(pinlane_buffer_free(buffer)); /* waits for the copy */
  EXPECT(is_done(landed) == 1 && producer->deleted == 1);
  EXPECT(producer->memory[255] == 3 && producer->memory[256] == 9);
  EXPECT(producer->memory[1055] == 9 && producer->memory[1056] == 3);
  OK(pinlane_ticket_free(filled));
  OK(pinlane_ticket_free(landed));
  free(producer);
}

/* The size is that of all elements together, for any producer. */
static void small_elements_take_as_many_bytes_as_they_share(void) {
  const struct {
    uint8_t bits;
    uint16_t lanes;
    uint64_t flags;
    int64_t count;
    size_t bytes;
  } cases[] = {{4, 1, 0, 7, 4},      {4, 1, PADDED, 7, 7},  {1, 1, 0, 17, 3},
               {1, 1, PADDED, 17, 17}, {6, 1, COPIED, 4, 3}, {4, 3, 0, 5, 8},
               {4, 3, PADDED, 5, 10},  {12, 1, 0, 5, 8},     {8, 1, PADDED, 5, 5}};
  for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
    for (uint32_t form = 0; form < 3; form++) { /* of 1.0, of 1.1, and before */
      struct producer *producer = produce();
      memset(producer->memory, 3, BYTES);
      managed *tensor = &producer->managed;
      tensor->version.minor = form % 2;
      tensor->flags = cases[n].flags;
      tensor->tensor.dtype = (data_type){1, cases[n].bits, cases[n].lanes};
      producer->shape[0] = 1;
      producer->shape[1] = producer->strides[0] = cases[n].count;
      legacy older = {tensor->tensor, NULL, NULL};
      if (form == 2) {
        if (cases[n].flags == PADDED) {
          free(producer);
          continue;
        }
        OK(pinlane_dlpack_from_legacy(&older, &tensor));
      }
      pinlane_buffer *buffer = NULL;
      OK(pinlane_buffer_from_dlpack(rig.device, tensor, &buffer));
      size_t bytes = 0;
      OK(pinlane_buffer_size(buffer, &bytes));
      EXPECT(bytes == cases[n].bytes);
      OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, bytes, "\x09", 1, NULL));
      OK(pinlane_device_buffer_download(rig.stream, rig.gpu, 0, buffer, 0, bytes, NULL));
      OK(pinlane_buffer_free(buffer));
      for (size_t at = 0; at < BYTES; at++) {
        const int is_inside = at >= 256 && at - 256 < cases[n].bytes;
        EXPECT(producer->memory[at] == (is_inside ? 9 : 3));
      }
      free(producer);
    }
  }
}

/* Also one that is page-locked already. */
static void an_exported_tensor_becomes_a_buffer_again(void) {
  pinlane_pool *pool = small_pool();
  pinlane_dlpack_options options = PINLANE_DLPACK_OPTIONS_INIT;
  options.device_type = PINLANE_DLPACK_CUDA_HOST;
  managed *tensor = NULL;
  OK(pinlane_buffer_into_dlpack(buffer_of(pool), &options, &tensor));
  void *const data = tensor->tensor.data;
  pinlane_buffer *buffer = NULL;
  OK(pinlane_buffer_from_dlpack(rig.device, tensor, &buffer));
  void *memory = NULL;
  OK(pinlane_buffer_write(buffer, &memory));
  EXPECT(memory == data && live(pool) == BYTES);
  OK(pinlane_device_buffer_upload(rig.stream, buffer, 0, rig.gpu, 0, BYTES, NULL));
  OK(pinlane_buffer_into_dlpack(buffer, NULL, &tensor)); /* and once more */
  EXPECT(tensor->tensor.data == data && live(pool) == BYTES);
  tensor->deleter(tensor);
  EXPECT(live(pool) == 0);
  OK(pinlane_pool_free(pool));

  pinlane_dlpack_options on_stream = PINLANE_DLPACK_OPTIONS_INIT;
  on_stream.stream = rig.stream;
  pinlane_device_buffer *gpu = NULL;
  pinlane_ticket *ticket = NULL;
  OK(pinlane_device_buffer_alloc(rig.device, BYTES, &gpu));
  OK(pinlane_device_buffer_into_dlpack(gpu, &on_stream, &tensor));
  void *const address = tensor->tensor.data;
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_from_dlpack(rig.other_stream, tensor, &gpu));
  OK(pinlane_device_buffer_from_dlpack(rig.stream, tensor, &gpu));
  void *found = NULL;
  OK(pinlane_device_buffer_address(gpu, &found));
  OK(pinlane_device_buffer_fill(rig.stream, gpu, 0, BYTES, "\x06", 1, &ticket));
  EXPECT(found == address && is_done(ticket) == 0);
  OK(pinlane_device_buffer_free(gpu)); /* waits */
  EXPECT(is_done(ticket) == 1);
  OK(pinlane_ticket_free(ticket));
}

/* The first use of an imported buffer waits for the stream that the producer was given. */
static void an_imported_device_buffer_is_ordered_behind_its_stream(void) {
  pinlane_stream *producer = NULL;
  OK(pinlane_stream_create(rig.device, NULL, &producer));
  pinlane_dlpack_options options = PINLANE_DLPACK_OPTIONS_INIT;
  options.stream = producer;
  pinlane_device_buffer *gpu = NULL;
  OK(pinlane_device_buffer_alloc(rig.device, BYTES, &gpu));
  managed *tensor = NULL;
  OK(pinlane_device_buffer_into_dlpack(gpu, &options, &tensor));
  pinlane_ticket *work = NULL, *later = NULL;
  OK(pinlane_stream_busy(producer, 1000, &work));
  OK(pinlane_device_buffer_from_dlpack(producer, tensor, &gpu));
  OK(pinlane_device_buffer_fill(rig.stream, gpu, 0, BYTES, "\x06", 1, &later));
  EXPECT(is_done(work) == 0);
  OK(pinlane_ticket_wait(later));
  EXPECT(is_done(work) == 1);
  OK(pinlane_device_buffer_free(gpu));
  OK(pinlane_ticket_free(work));
  OK(pinlane_ticket_free(later));
  OK(pinlane_stream_free(producer));
}

static void what_cannot_be_imported_stays_the_callers(void) {
  struct producer *producer = produce();
  const managed good = producer->managed;
  managed *const tensor = &producer->managed;
  pinlane_buffer *buffer = (pinlane_buffer *)&rig;
#define BAD(status, change)                                                                        \
  *tensor = good;                                                                                  \
  change;                                                                                          \
  REFUSED(status, pinlane_buffer_from_dlpack(rig.device, tensor, &buffer))
  BAD(INVALID_VALUE, tensor->version.major = 2);
  BAD(INVALID_VALUE, tensor->flags = READ_ONLY);
  BAD(INVALID_VALUE, tensor->tensor.device.device_type = 2);
  BAD(INVALID_VALUE, tensor->tensor.ndim = -1);
  BAD(INVALID_VALUE, tensor->tensor.shape = NULL);
  BAD(INVALID_VALUE, tensor->tensor.dtype.bits = 0);
  BAD(INVALID_VALUE, tensor->tensor.data = NULL);
  BAD(INVALID_VALUE, tensor->tensor.byte_offset = UINT64_MAX);
  BAD(INVALID_VALUE, tensor->tensor.byte_offset = UINT64_MAX - (uintptr_t)producer->memory);
  BAD(INVALID_VALUE, tensor->flags = 8);
  BAD(INVALID_VALUE, (tensor->tensor.dtype = (data_type){15, 8, 1})); /* no FP6 */
  BAD(INVALID_VALUE, tensor->tensor.shape = (int64_t *)((char *)producer->shape + 4));
  BAD(INVALID_VALUE, tensor->tensor.strides = (int64_t *)((char *)producer->strides + 4));
  BAD(INVALID_VALUE, producer->strides[0] = 101); /* a gap */
  producer->strides[0] = 100;
  BAD(INVALID_VALUE, producer->shape[1] = -1);
  BAD(INVALID_VALUE, producer->shape[1] = INT64_MAX);
  producer->shape[1] = 100;
#undef BAD
  *tensor = good;
  REFUSED(INVALID_VALUE, pinlane_buffer_from_dlpack(rig.device, NULL, &buffer));
  REFUSED(INVALID_VALUE, pinlane_buffer_from_dlpack(rig.device, tensor, NULL));
  REFUSED(INVALID_HANDLE, pinlane_buffer_from_dlpack(NULL, tensor, &buffer));
  REFUSED(INVALID_VALUE, pinlane_buffer_from_dlpack(rig.device, (managed *)1, &buffer));
  EXPECT(buffer == (pinlane_buffer *)&rig);

  /* Already registered. */
  pinlane_buffer *first = NULL;
  OK(pinlane_buffer_register(rig.device, producer->memory, BYTES, &first));
  REFUSED(INVALID_VALUE, pinlane_buffer_from_dlpack(rig.device, tensor, &buffer));
  OK(pinlane_buffer_free(first));
  EXPECT(producer->deleted == 0);

  /* Strides of lengths of 1 mean nothing, and none mean no gaps. */
  producer->shape[0] = 1;
  producer->strides[0] = 77;
  OK(pinlane_buffer_from_dlpack(rig.device, tensor, &buffer));
  OK(pinlane_buffer_free(buffer));
  tensor->tensor.strides = NULL;
  OK(pinlane_buffer_from_dlpack(rig.device, tensor, &buffer));
  OK(pinlane_buffer_free(buffer));
  EXPECT(producer->deleted == 2);

  /* No elements, and no deleter. */
  producer->shape[0] = 0;
  tensor->tensor.data = NULL;
  tensor->deleter = NULL;
  OK(pinlane_buffer_from_dlpack(rig.device, tensor, &buffer));
  OK(pinlane_buffer_free(buffer));
  free(producer);
}

/* A tensor of memory that is never written is a source of uploads, and nothing else. */
static void a_read_only_tensor_is_a_source_of_uploads(void) {
  static const char table[BYTES] = {7, 8, 9};
  for (int kind = CPU; kind <= CUDA_HOST; kind += CUDA_HOST - CPU) {
    struct producer *producer = produce();
    producer->managed.flags = READ_ONLY;
    producer->managed.tensor.device.device_type = kind;
    producer->managed.tensor.data = (void *)table;
    producer->managed.tensor.byte_offset = 0;
    pinlane_buffer *buffer = NULL, *locked = NULL;
    REFUSED(INVALID_VALUE,
            pinlane_buffer_from_dlpack(rig.device, &producer->managed, &buffer));
    EXPECT(strstr(pinlane_last_error(), "the tensor is read-only") != NULL);
    if (kind == CUDA_HOST) {
      OK(pinlane_buffer_register_read_only(rig.device, table, BYTES, &locked));
    }
    OK(pinlane_buffer_from_dlpack_read_only(rig.device, &producer->managed, &buffer));
    OK(pinlane_device_buffer_upload(rig.stream, buffer, 0, rig.gpu, 0, 800, NULL));

    const void *data = NULL;
    void *to = NULL;
    OK(pinlane_buffer_try_read(buffer, &data)); /* though the upload has not run */
    EXPECT(data == table);
    REFUSED(INVALID_VALUE, pinlane_buffer_write(buffer, &to));
    EXPECT(strstr(pinlane_last_error(), "the buffer is only read") != NULL && to == NULL);
    REFUSED(INVALID_VALUE,
            pinlane_device_buffer_download(rig.stream, rig.gpu, 0, buffer, 0, 1, NULL));
    managed *again = NULL;
    REFUSED(INVALID_VALUE, pinlane_buffer_into_dlpack(buffer, NULL, &again));
    EXPECT(again == NULL && producer->deleted == 0);

    OK(pinlane_buffer_free(buffer)); /* waits for the upload */
    EXPECT(producer->deleted == 1);
    char found[3] = {0};
    OK(pinlane_device_buffer_download_slice(rig.stream, rig.gpu, 0, found, 3));
    EXPECT(memcmp(found, table, 3) == 0);
    OK(pinlane_buffer_free(locked));
    free(producer);
  }

  /* One that could be written too; and what is refused stays the caller's. */
  struct producer *producer = produce();
  managed *const tensor = &producer->managed;
  pinlane_buffer *buffer = NULL;
  OK(pinlane_buffer_from_dlpack_read_only(rig.device, tensor, &buffer));
  OK(pinlane_buffer_free(buffer));
  EXPECT(producer->deleted == 1);
  buffer = NULL;
  producer->strides[0] = 101; /* a gap */
  REFUSED(INVALID_VALUE, pinlane_buffer_from_dlpack_read_only(rig.device, tensor, &buffer));
  producer->strides[0] = 100;
  REFUSED(INVALID_VALUE, pinlane_buffer_from_dlpack_read_only(rig.device, NULL, &buffer));
  REFUSED(INVALID_VALUE, pinlane_buffer_from_dlpack_read_only(rig.device, tensor, NULL));
  pinlane_buffer *first = NULL;
  OK(pinlane_buffer_register(rig.device, producer->memory, BYTES, &first));
  REFUSED(INVALID_VALUE, pinlane_buffer_from_dlpack_read_only(rig.device, tensor, &buffer));
  OK(pinlane_buffer_free(first));
  EXPECT(buffer == NULL && producer->deleted == 1);
  free(producer);
}

int main(void) {
  set_up(BYTES, BYTES);
  a_tensor_becomes_a_buffer();
  small_elements_take_as_many_bytes_as_they_share();
  an_exported_tensor_becomes_a_buffer_again();
  an_imported_device_buffer_is_ordered_behind_its_stream();
  what_cannot_be_imported_stays_the_callers();
  a_read_only_tensor_is_a_source_of_uploads();
  tear_down();
  return verdict("tensors as buffers");
}
