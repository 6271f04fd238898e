/* Buffers as tensors of DLPack. C11, on a lazy emulated device: work that nothing waits for stays
 * pending. */

#include "dlpack_rig.h"

MEMBER(pinlane_dlpack_options, size, 0);
MEMBER(pinlane_dlpack_options, shape, 8);
MEMBER(pinlane_dlpack_options, strides, 16);
MEMBER(pinlane_dlpack_options, ndim, 24);
MEMBER(pinlane_dlpack_options, code, 28);
MEMBER(pinlane_dlpack_options, bits, 29);
MEMBER(pinlane_dlpack_options, lanes, 30);
MEMBER(pinlane_dlpack_options, offset_bytes, 32);
MEMBER(pinlane_dlpack_options, device_type, 40);
MEMBER(pinlane_dlpack_options, flags, 44);
MEMBER(pinlane_dlpack_options, stream, 48);
_Static_assert(sizeof(pinlane_dlpack_options) == 56, "pinlane_dlpack_options");

static size_t in_flight(pinlane_pool *pool) {
  pinlane_pool_stats stats = PINLANE_POOL_STATS_INIT;
  OK(pinlane_pool_get_stats(pool, &stats));
  return stats.in_flight_bytes;
}

static void a_buffer_becomes_a_tensor(void) {
  pinlane_pool *pool = small_pool();
  pinlane_buffer *buffer = buffer_of(pool);
  void *data = NULL;
  OK(pinlane_buffer_write(buffer, &data));
  memset(data, 7, BYTES);
  managed *tensor = NULL;
  OK(pinlane_buffer_into_dlpack(buffer, NULL, &tensor));
  EXPECT(tensor->version.major == 1 && tensor->version.minor == 0 && tensor->flags == 0);
  EXPECT(tensor->tensor.data == data && tensor->tensor.byte_offset == 0);
  EXPECT(tensor->tensor.device.device_type == CPU && tensor->tensor.device.device_id == 0);
  const data_type dtype = tensor->tensor.dtype;
  EXPECT(dtype.code == 1 && dtype.bits == 8 && dtype.lanes == 1);
  EXPECT(tensor->tensor.ndim == 1 && tensor->tensor.shape[0] == BYTES);
  EXPECT(tensor->tensor.strides[0] == 1 && ((char *)tensor->tensor.data)[BYTES - 1] == 7);

  /* Only the tensor owns the memory. */
  size_t bytes = 0;
  REFUSED(INVALID_HANDLE, pinlane_buffer_size(buffer, &bytes));
  REFUSED(INVALID_HANDLE, pinlane_buffer_free(buffer));
  EXPECT(live(pool) == BYTES);
  tensor->deleter(tensor);
  EXPECT(live(pool) == 0);

  /* Even the pool may be freed before. */
  buffer = buffer_of(pool);
  OK(pinlane_buffer_into_dlpack(buffer, NULL, &tensor));
  OK(pinlane_pool_free(pool));
  memset(tensor->tensor.data, 8, BYTES);
  tensor->deleter(tensor);
}

static void a_tensor_has_the_layout_that_was_asked_for(void) {
  const int64_t shape[3] = {2, 3, 4}, strides[3] = {-12, 4, 1};
  pinlane_dlpack_options options = PINLANE_DLPACK_OPTIONS_INIT;
  options.code = 2;
  options.bits = 32;
  options.shape = shape;
  options.ndim = 3;
  options.offset_bytes = 64;
  options.device_type = PINLANE_DLPACK_CUDA_HOST;
  options.flags = PINLANE_DLPACK_READ_ONLY;
  managed *tensor = NULL;
  OK(pinlane_buffer_into_dlpack(buffer_of(rig.pool), &options, &tensor));
  const dl_tensor *it = &tensor->tensor;
  EXPECT(tensor->flags == READ_ONLY && it->device.device_type == CUDA_HOST);
  EXPECT(it->ndim == 3 && it->dtype.code == 2 && it->dtype.bits == 32 && it->byte_offset == 64);
  EXPECT(memcmp(it->shape, shape, sizeof shape) == 0 && it->shape != shape);
  EXPECT(it->strides[0] == 12 && it->strides[1] == 4 && it->strides[2] == 1);
  tensor->deleter(tensor);

  options.strides = strides;
  OK(pinlane_buffer_into_dlpack(buffer_of(rig.pool), &options, &tensor));
  EXPECT(memcmp(tensor->tensor.strides, strides, sizeof strides) == 0);
  tensor->deleter(tensor);

  options.shape = NULL; /* as many as there are */
  options.strides = NULL;
  OK(pinlane_buffer_into_dlpack(buffer_of(rig.pool), &options, &tensor));
  EXPECT(tensor->tensor.ndim == 1 && tensor->tensor.shape[0] == (BYTES - 64) / 4);
  tensor->deleter(tensor);

  const int64_t none[2] = {3, 0};
  options.shape = none;
  options.ndim = 2;
  OK(pinlane_buffer_into_dlpack(buffer_of(rig.pool), &options, &tensor));
  EXPECT(tensor->tensor.data == NULL && tensor->tensor.shape[1] == 0);
  tensor->deleter(tensor);
  options.ndim = 0; /* one element */
  OK(pinlane_buffer_into_dlpack(buffer_of(rig.pool), &options, &tensor));
  EXPECT(tensor->tensor.ndim == 0 && tensor->tensor.data != NULL);
  tensor->deleter(tensor);
}

/* Elements of less than a byte are packed: there are two elements of 4 bits for each byte. */
static void small_elements_are_packed(void) {
  const struct {
    uint8_t code, bits;
    uint16_t lanes;
    int64_t count;
  } types[] = {{1, 4, 1, 2 * BYTES},       {0, 1, 1, 8 * BYTES},  {17, 4, 1, 2 * BYTES},
               {15, 6, 1, 8 * BYTES / 6},  {1, 4, 3, 8 * BYTES / 12},
               {1, 12, 1, 8 * BYTES / 12}, {1, 4, 2, BYTES}};
  for (size_t n = 0; n < sizeof types / sizeof *types; n++) {
    pinlane_dlpack_options options = PINLANE_DLPACK_OPTIONS_INIT;
    options.code = types[n].code;
    options.bits = types[n].bits;
    options.lanes = types[n].lanes;
    managed *tensor = NULL;
    OK(pinlane_buffer_into_dlpack(buffer_of(rig.pool), &options, &tensor));
    EXPECT(tensor->tensor.ndim == 1 && tensor->tensor.shape[0] == types[n].count);
    EXPECT(tensor->flags == 0 && tensor->version.major == 1);
    EXPECT(tensor->version.minor == 1 || types[n].bits * types[n].lanes % 8 == 0);
    tensor->deleter(tensor);

    /* The largest number that fits, and one more. */
    pinlane_buffer *buffer = buffer_of(rig.pool);
    int64_t shape[2] = {1, types[n].count + 1};
    options.shape = shape;
    options.ndim = 2;
    REFUSED(OUT_OF_RANGE, pinlane_buffer_into_dlpack(buffer, &options, &tensor));
    shape[1]--;
    OK(pinlane_buffer_into_dlpack(buffer, &options, &tensor));
    tensor->deleter(tensor);
  }
}

static void what_does_not_fit_is_refused_and_the_buffer_stays(void) {
  pinlane_buffer *buffer = buffer_of(rig.pool);
  managed *tensor = (managed *)&rig;
  const pinlane_dlpack_options good = PINLANE_DLPACK_OPTIONS_INIT;
  pinlane_dlpack_options bad;
#define BAD(status, change)                                                                        \
  bad = good;                                                                                      \
  change;                                                                                          \
  REFUSED(status, pinlane_buffer_into_dlpack(buffer, &bad, &tensor))

  const int64_t ones[2] = {1, 1}, long_one[1] = {BYTES + 1}, negative[1] = {-1};
  const int64_t huge[2] = {INT64_MAX, INT64_MAX}, far[2] = {INT64_MAX, INT64_MIN};
  const int64_t two[1] = {2}, back[1] = {-1};
  BAD(INVALID_VALUE, bad.size = 8);
  BAD(INVALID_VALUE, bad.flags = 2);
  BAD(INVALID_VALUE, bad.device_type = 2);
  BAD(INVALID_VALUE, bad.bits = 0);
  BAD(INVALID_VALUE, bad.lanes = 0);
  BAD(INVALID_VALUE, (bad.code = 17, bad.bits = 8)); /* no FP4 */
  BAD(INVALID_VALUE, bad.ndim = -1);
  BAD(INVALID_VALUE, (bad.shape = negative, bad.ndim = 1));
  BAD(INVALID_VALUE, (bad.shape = huge, bad.ndim = 2));
  BAD(INVALID_VALUE, (bad.bits = 32, bad.offset_bytes = 2));
  BAD(INVALID_VALUE, (bad.shape = (const int64_t *)((const char *)ones + 1), bad.ndim = 2));
  BAD(OUT_OF_RANGE, (bad.shape = long_one, bad.ndim = 1));
  BAD(OUT_OF_RANGE, (bad.bits = 16, bad.offset_bytes = BYTES, bad.shape = ones, bad.ndim = 2));
  BAD(OUT_OF_RANGE, (bad.shape = two, bad.strides = back, bad.ndim = 1));
  BAD(OUT_OF_RANGE, (bad.shape = two, bad.strides = far, bad.ndim = 1));
  BAD(INVALID_HANDLE, bad.stream = (pinlane_stream *)rig.pool);
#undef BAD
  REFUSED(INVALID_VALUE, pinlane_buffer_into_dlpack(buffer, NULL, NULL));
  REFUSED(INVALID_HANDLE, pinlane_buffer_into_dlpack(NULL, NULL, &tensor));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_into_dlpack(rig.gpu, NULL, &tensor));

  pinlane_dlpack_options own = good;
  pinlane_stream *per_thread = NULL;
  OK(pinlane_stream_borrow(rig.device, (void *)2, &per_thread));
  own.stream = per_thread;
  REFUSED(INVALID_VALUE, pinlane_buffer_into_dlpack(buffer, &own, &tensor));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_into_dlpack(rig.gpu, &own, &tensor));
  OK(pinlane_stream_free(per_thread));

  char mine[64];
  pinlane_buffer *lent = NULL;
  OK(pinlane_buffer_register(rig.device, mine, sizeof mine, &lent));
  REFUSED(INVALID_VALUE, pinlane_buffer_into_dlpack(lent, NULL, &tensor));
  OK(pinlane_buffer_free(lent));
  EXPECT(tensor == (managed *)&rig);
  OK(pinlane_buffer_free(buffer));
}

/* Host memory is accessed at once, so the call waits. */
static void pending_uses_are_waited_for(void) {
  pinlane_buffer *buffer = buffer_of(rig.pool);
  pinlane_ticket *filled = NULL, *landed = NULL;
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, BYTES, "\x05", 1, &filled));
  OK(pinlane_device_buffer_download(rig.stream, rig.gpu, 0, buffer, 0, BYTES, &landed));
  EXPECT(is_done(landed) == 0);
  managed *tensor = NULL;
  OK(pinlane_buffer_into_dlpack(buffer, NULL, &tensor));
  EXPECT(is_done(landed) == 1 && ((char *)tensor->tensor.data)[BYTES - 1] == 5);
  tensor->deleter(tensor);
  OK(pinlane_ticket_free(filled));
  OK(pinlane_ticket_free(landed));
}

/* The consumer's device may still use the memory when it deletes the tensor. */
static void memory_is_reused_when_the_consumers_stream_is_past_it(void) {
  pinlane_pool *pool = small_pool();
  pinlane_stream *consumer = NULL;
  OK(pinlane_stream_create(rig.device, NULL, &consumer));
  pinlane_dlpack_options options = PINLANE_DLPACK_OPTIONS_INIT;
  options.stream = consumer;
  managed *tensor = NULL;
  OK(pinlane_buffer_into_dlpack(buffer_of(pool), &options, &tensor));
  void *const data = tensor->tensor.data;
  pinlane_ticket *busy = NULL;
  OK(pinlane_stream_busy(consumer, 1000, &busy));
  OK(pinlane_stream_free(consumer)); /* the tensor keeps the stream */
  tensor->deleter(tensor);
  EXPECT(in_flight(pool) == BYTES && is_done(busy) == 0);
  pinlane_buffer *again = NULL;
  REFUSED(NOT_READY, pinlane_buffer_try_alloc(pool, BYTES, &again));
  OK(pinlane_buffer_alloc(pool, BYTES, &again)); /* waits */
  void *address = NULL;
  OK(pinlane_buffer_address(again, &address));
  EXPECT(address == data && is_done(busy) == 1);
  OK(pinlane_buffer_free(again));
  OK(pinlane_ticket_free(busy));
  OK(pinlane_pool_free(pool));
}

static size_t free_memory(void) {
  size_t free_bytes = 0, total = 0;
  OK(pinlane_device_memory_info(rig.device, &free_bytes, &total));
  return free_bytes;
}

static void a_device_buffer_becomes_a_tensor(void) {
  pinlane_stream *consumer = NULL;
  OK(pinlane_stream_create(rig.device, NULL, &consumer));
  const size_t before = free_memory();
  pinlane_device_buffer *gpu = NULL;
  OK(pinlane_device_buffer_alloc(rig.device, BYTES, &gpu));
  void *address = NULL;
  OK(pinlane_device_buffer_address(gpu, &address));
  pinlane_ticket *filled = NULL, *behind = NULL;
  OK(pinlane_device_buffer_fill(rig.stream, gpu, 0, BYTES, "\x05", 1, &filled));
  pinlane_dlpack_options options = PINLANE_DLPACK_OPTIONS_INIT;
  options.stream = consumer;
  options.code = 2;
  options.bits = 32;
  managed *tensor = NULL;
  OK(pinlane_device_buffer_into_dlpack(gpu, &options, &tensor));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_free(gpu));
  EXPECT(tensor->tensor.data == address && tensor->tensor.shape[0] == BYTES / 4);
  EXPECT(tensor->tensor.device.device_type == EXTENSION && tensor->tensor.device.device_id == 0);

  /* The consumer's stream waits for what filled the buffer. */
  EXPECT(is_done(filled) == 0);
  OK(pinlane_stream_record(consumer, &behind));
  OK(pinlane_ticket_wait(behind));
  EXPECT(is_done(filled) == 1);

  /* The memory is freed after the work that the consumer has enqueued. */
  pinlane_ticket *busy = NULL;
  OK(pinlane_stream_busy(consumer, 1000, &busy));
  EXPECT(free_memory() < before);
  tensor->deleter(tensor);
  EXPECT(is_done(busy) == 0); /* does not wait */
  OK(pinlane_stream_synchronize(consumer));
  EXPECT(free_memory() == before);
  OK(pinlane_ticket_free(filled));
  OK(pinlane_ticket_free(behind));
  OK(pinlane_ticket_free(busy));
  OK(pinlane_stream_free(consumer));
}

static void tensors_have_an_older_form(void) {
  pinlane_pool *pool = small_pool();
  managed *tensor = NULL;
  legacy *old = NULL;
  OK(pinlane_buffer_into_dlpack(buffer_of(pool), NULL, &tensor));
  OK(pinlane_dlpack_to_legacy(tensor, &old));
  EXPECT(old->tensor.shape[0] == BYTES && old->tensor.data == tensor->tensor.data);
  OK(pinlane_dlpack_from_legacy(old, &tensor));
  EXPECT(tensor->version.major == 1 && tensor->flags == 0 && tensor->tensor.shape[0] == BYTES);
  EXPECT(live(pool) == BYTES);
  OK(pinlane_dlpack_to_legacy(tensor, &old));
  old->deleter(old);
  EXPECT(live(pool) == 0);

  pinlane_dlpack_options options = PINLANE_DLPACK_OPTIONS_INIT;
  options.flags = PINLANE_DLPACK_READ_ONLY;
  OK(pinlane_buffer_into_dlpack(buffer_of(pool), &options, &tensor));
  REFUSED(INVALID_VALUE, pinlane_dlpack_to_legacy(tensor, &old));
  tensor->flags = PADDED;
  REFUSED(INVALID_VALUE, pinlane_dlpack_to_legacy(tensor, &old));
  tensor->deleter(tensor);
  REFUSED(INVALID_VALUE, pinlane_dlpack_to_legacy(NULL, &old));
  REFUSED(INVALID_VALUE, pinlane_dlpack_to_legacy((managed *)((char *)&options + 1), &old));
  REFUSED(INVALID_VALUE, pinlane_dlpack_from_legacy(NULL, &tensor));
  OK(pinlane_pool_free(pool));
}

int main(void) {
  set_up(BYTES, BYTES);
  a_buffer_becomes_a_tensor();
  a_tensor_has_the_layout_that_was_asked_for();
  small_elements_are_packed();
  what_does_not_fit_is_refused_and_the_buffer_stays();
  pending_uses_are_waited_for();
  memory_is_reused_when_the_consumers_stream_is_past_it();
  a_device_buffer_becomes_a_tensor();
  tensors_have_an_older_form();
  tear_down();
  return verdict("buffers as tensors");
}
