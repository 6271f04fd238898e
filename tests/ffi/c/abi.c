/* How the C interface refuses invalid handles, outputs, options and ranges. The layout of its
 * structs. C11, on a lazy emulated device. */

#include "rig.h"

_Static_assert(sizeof(pinlane_emulator_options) == 72, "pinlane_emulator_options");
MEMBER(pinlane_emulator_options, size, 0);
MEMBER(pinlane_emulator_options, seed, 8);
MEMBER(pinlane_emulator_options, memory_bytes, 16);
MEMBER(pinlane_emulator_options, execution, 24);
MEMBER(pinlane_emulator_options, flags, 28);
MEMBER(pinlane_emulator_options, page_lock_limit_bytes, 32);
MEMBER(pinlane_emulator_options, replay, 40);
MEMBER(pinlane_emulator_options, operations, 48);
MEMBER(pinlane_emulator_options, pct_depth, 56);
MEMBER(pinlane_emulator_options, reserved, 60);
MEMBER(pinlane_emulator_options, host_function_limit_us, 64);
_Static_assert(sizeof(pinlane_stream_options) == 16, "pinlane_stream_options");
MEMBER(pinlane_stream_options, size, 0);
MEMBER(pinlane_stream_options, priority, 8);
MEMBER(pinlane_stream_options, flags, 12);
_Static_assert(sizeof(pinlane_status) == 4, "pinlane_status");
_Static_assert(sizeof(pinlane_host_slice) == 40, "pinlane_host_slice");
MEMBER(pinlane_host_slice, name, 0);
MEMBER(pinlane_host_slice, data, 8);
MEMBER(pinlane_host_slice, bytes, 16);
MEMBER(pinlane_host_slice, element_bytes, 24);
MEMBER(pinlane_host_slice, reserved, 32);
_Static_assert(sizeof(pinlane_producer) == 48, "pinlane_producer");
MEMBER(pinlane_producer, size, 0);
MEMBER(pinlane_producer, user, 8);
MEMBER(pinlane_producer, next, 16);
MEMBER(pinlane_producer, describe, 24);
MEMBER(pinlane_producer, fill, 32);
MEMBER(pinlane_producer, release, 40);
_Static_assert(sizeof(pinlane_prefetch_options) == 24, "pinlane_prefetch_options");
MEMBER(pinlane_prefetch_options, depth, 8);
MEMBER(pinlane_prefetch_options, workers, 12);
MEMBER(pinlane_prefetch_options, flags, 16);
_Static_assert(sizeof(pinlane_prefetch_progress) == 40, "pinlane_prefetch_progress");
MEMBER(pinlane_prefetch_progress, produced, 8);
MEMBER(pinlane_prefetch_progress, uploaded, 16);
MEMBER(pinlane_prefetch_progress, yielded, 24);
MEMBER(pinlane_prefetch_progress, bytes, 32);

static void versions_and_names(void) {
  EXPECT(pinlane_version() == PINLANE_VERSION);
  EXPECT(strcmp(pinlane_status_name(PINLANE_STATUS_BUSY), "PINLANE_STATUS_BUSY") == 0);
  EXPECT(strcmp(pinlane_status_name(-1), "PINLANE_STATUS_UNKNOWN") == 0);
  char name[4] = "xxx";
  OK(pinlane_device_name(rig.device, name, sizeof name));
  EXPECT(name[3] == '\0' && strlen(name) == 3);
  int32_t ordinal = -1, same = -1;
  OK(pinlane_device_ordinal(rig.other_device, &ordinal));
  EXPECT(ordinal == 1);
  OK(pinlane_stream_device_ordinal(rig.stream, &ordinal));
  EXPECT(ordinal == 0);
  OK(pinlane_device_is_same(rig.device, rig.device, &same));
  EXPECT(same == 1);
  OK(pinlane_device_is_same(rig.device, rig.other_device, &same));
  EXPECT(same == 0);
  EXPECT(strcmp(pinlane_cuda_error_name(2), "cudaErrorMemoryAllocation") == 0);
  EXPECT(strcmp(pinlane_cuda_error_name(-1), "cudaErrorUnknownCode") == 0);
  EXPECT(pinlane_cuda_error_is_sticky(700) == 1 && pinlane_cuda_error_is_sticky(2) == 0);
}

/* Calls every function that takes handles with these invalid ones. */
static void refuses(pinlane_device *device, pinlane_pool *pool, pinlane_stream *stream,
                    pinlane_buffer *buffer, pinlane_device_buffer *gpu, pinlane_ticket *ticket) {
  void *const untouched = &rig;
  void *out = untouched;
  const void *const_out = untouched;
  size_t size = 77, size2 = 77;
  int32_t number = 77;
  char name[8] = "as was";
  pinlane_device *new_device = untouched;
  pinlane_pool *new_pool = untouched;
  pinlane_stream *new_stream = untouched;
  pinlane_buffer *new_buffer = untouched;
  pinlane_file *new_file = untouched;
  pinlane_device_buffer *new_gpu = untouched;
  pinlane_ticket *new_ticket = untouched;
  pinlane_pool_stats stats = PINLANE_POOL_STATS_INIT;
  const pinlane_pool_stats stats_before = stats;
  pinlane_class_stats class_stats = {.block_bytes = 77};

  REFUSED(INVALID_HANDLE, pinlane_device_name(device, name, sizeof name));
  REFUSED(INVALID_HANDLE, pinlane_device_ordinal(device, &number));
  REFUSED(INVALID_HANDLE, pinlane_device_is_same(device, rig.device, &number));
  REFUSED(INVALID_HANDLE, pinlane_device_is_same(rig.device, device, &number));
  REFUSED(INVALID_HANDLE, pinlane_device_memory_info(device, &size, &size2));
  REFUSED(INVALID_HANDLE, pinlane_device_clone(device, &new_device));
  REFUSED(INVALID_HANDLE, pinlane_pool_create(device, NULL, &new_pool));
  REFUSED(INVALID_HANDLE, pinlane_stream_create(device, NULL, &new_stream));
  REFUSED(INVALID_HANDLE, pinlane_stream_borrow(device, NULL, &new_stream));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_alloc(device, 1, &new_gpu));
  REFUSED(INVALID_HANDLE, pinlane_pool_clone(pool, &new_pool));
  REFUSED(INVALID_HANDLE, pinlane_pool_is_same(pool, rig.pool, &number));
  REFUSED(INVALID_HANDLE, pinlane_pool_is_same(rig.pool, pool, &number));
  REFUSED(INVALID_HANDLE, pinlane_pool_get_stats(pool, &stats));
  REFUSED(INVALID_HANDLE, pinlane_pool_get_class_stats(pool, &class_stats, 1, &size));
  REFUSED(INVALID_HANDLE, pinlane_pool_trim(pool, 0, &size));
  REFUSED(INVALID_HANDLE, pinlane_pool_allocate(pool, 1, 1, &out));
  REFUSED(INVALID_HANDLE, pinlane_pool_deallocate(pool, untouched));
  REFUSED(INVALID_HANDLE, pinlane_pool_record_use(pool, untouched, rig.stream));
  REFUSED(INVALID_HANDLE, pinlane_pool_record_use(rig.pool, untouched, stream));
  REFUSED(INVALID_HANDLE, pinlane_buffer_alloc(pool, 1, &new_buffer));
  REFUSED(INVALID_HANDLE, pinlane_buffer_alloc_zeroed(pool, 1, &new_buffer));
  REFUSED(INVALID_HANDLE, pinlane_buffer_try_alloc(pool, 1, &new_buffer));
  REFUSED(INVALID_HANDLE, pinlane_buffer_alloc_aligned(pool, 1, 1, &new_buffer));
  REFUSED(INVALID_HANDLE, pinlane_buffer_alloc_timeout(pool, 1, 1, &new_buffer));
  REFUSED(INVALID_HANDLE, pinlane_buffer_register(device, name, sizeof name, &new_buffer));
  REFUSED(INVALID_HANDLE,
          pinlane_buffer_register_read_only(device, name, sizeof name, &new_buffer));
  REFUSED(INVALID_HANDLE, pinlane_file_open_mapped(device, "/proc/self/exe", &new_file));
  REFUSED(INVALID_HANDLE, pinlane_buffer_read(buffer, &const_out));
  REFUSED(INVALID_HANDLE, pinlane_buffer_write(buffer, &out));
  REFUSED(INVALID_HANDLE, pinlane_buffer_try_read(buffer, &const_out));
  REFUSED(INVALID_HANDLE, pinlane_buffer_try_write(buffer, &out));
  REFUSED(INVALID_HANDLE, pinlane_buffer_address(buffer, &out));
  REFUSED(INVALID_HANDLE, pinlane_buffer_size(buffer, &size));
  REFUSED(INVALID_HANDLE, pinlane_buffer_acquire(buffer, rig.stream));
  REFUSED(INVALID_HANDLE, pinlane_buffer_acquire(rig.buffer, stream));
  REFUSED(INVALID_HANDLE, pinlane_buffer_record_use(buffer, rig.stream));
  REFUSED(INVALID_HANDLE, pinlane_buffer_record_use(rig.buffer, stream));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_address(gpu, &out));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_size(gpu, &size));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_acquire(gpu, rig.stream));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_acquire(rig.gpu, stream));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_record_use(gpu, rig.stream));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_record_use(rig.gpu, stream));
  REFUSED(INVALID_HANDLE, pinlane_stream_native(stream, &out));
  REFUSED(INVALID_HANDLE, pinlane_stream_device_ordinal(stream, &number));
  REFUSED(INVALID_HANDLE, pinlane_stream_synchronize(stream));
  REFUSED(INVALID_HANDLE, pinlane_stream_record(stream, &new_ticket));
  REFUSED(INVALID_HANDLE, pinlane_stream_wait(stream, rig.ticket));
  REFUSED(INVALID_HANDLE, pinlane_stream_wait(rig.stream, ticket));
  REFUSED(INVALID_HANDLE, pinlane_stream_wait_event(stream, name));
  REFUSED(INVALID_HANDLE, pinlane_stream_record_event(stream, name));
  REFUSED(INVALID_HANDLE, pinlane_stream_busy(stream, 1, &new_ticket));
  REFUSED(INVALID_HANDLE, pinlane_ticket_wait(ticket));
  REFUSED(INVALID_HANDLE, pinlane_ticket_is_done(ticket, &number));

  pinlane_stream *s = rig.stream;
  pinlane_ticket **t = &new_ticket;
  REFUSED(INVALID_HANDLE, pinlane_upload(stream, rig.buffer, 0, name, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_upload(s, buffer, 0, name, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_download(stream, name, rig.buffer, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_download(s, name, buffer, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_upload(stream, rig.buffer, 0, rig.gpu, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_upload(s, buffer, 0, rig.gpu, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_upload(s, rig.buffer, 0, gpu, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_download(stream, rig.gpu, 0, rig.buffer, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_download(s, gpu, 0, rig.buffer, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_download(s, rig.gpu, 0, buffer, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_copy(stream, rig.gpu, 0, rig.gpu2, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_copy(s, gpu, 0, rig.gpu2, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_copy(s, rig.gpu, 0, gpu, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_fill(stream, rig.gpu, 0, 1, "x", 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_fill(s, gpu, 0, 1, "x", 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_checksum(stream, rig.gpu, 0, 1, rig.gpu2, 0, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_checksum(s, gpu, 0, 1, rig.gpu2, 0, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_checksum(s, rig.gpu, 0, 1, gpu, 0, t));
  REFUSED(INVALID_HANDLE, pinlane_upload_slice(stream, name, name, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_download_slice(stream, name, name, 1));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_upload_slice(stream, name, rig.gpu, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_upload_slice(s, name, gpu, 0, 1, t));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_download_slice(stream, rig.gpu, 0, name, 1));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_download_slice(s, gpu, 0, name, 1));
  REFUSED(INVALID_HANDLE, pinlane_upload_batch(stream, NULL, 0, NULL, t));
  REFUSED(INVALID_HANDLE, pinlane_download_batch(stream, NULL, 0, NULL, t));
  REFUSED(INVALID_HANDLE, pinlane_copy_batch(stream, NULL, 0, t));
  REFUSED(INVALID_HANDLE, pinlane_upload_file(s, (void *)gpu, 0, name, 1, t));
  if (gpu != NULL) { /* a NULL buffer means: the side is named by its address */
    const pinlane_copy copy = {.src = name, .bytes = 1, .device_buffer = gpu};
    const pinlane_device_copy between = {.src = name, .bytes = 1, .dst_buffer = gpu};
    REFUSED(INVALID_HANDLE, pinlane_upload_batch(s, &copy, 1, NULL, t));
    REFUSED(INVALID_HANDLE, pinlane_copy_batch(s, &between, 1, t));
  }
  if (buffer != NULL) {
    const pinlane_copy copy = {.src = name, .bytes = 1, .buffer = buffer};
    REFUSED(INVALID_HANDLE, pinlane_download_batch(s, &copy, 1, NULL, t));
  }

  EXPECT(pinlane_last_cuda_error() == 0);
  EXPECT(out == untouched && const_out == untouched && new_device == untouched);
  EXPECT(size == 77 && size2 == 77 && number == 77);
  EXPECT(strcmp(name, "as was") == 0);
  EXPECT((void *)new_pool == untouched && (void *)new_stream == untouched);
  EXPECT((void *)new_buffer == untouched && (void *)new_gpu == untouched);
  EXPECT((void *)new_ticket == untouched && (void *)new_file == untouched);
  EXPECT(memcmp(&stats, &stats_before, sizeof stats) == 0 && class_stats.block_bytes == 77);
}

static void c_rule_03_handles_that_are_wrong_are_refused(void) {
  refuses(NULL, NULL, NULL, NULL, NULL, NULL);

  /* Handles of another type. */
  refuses((void *)rig.pool, (void *)rig.stream, (void *)rig.buffer, (void *)rig.gpu,
          (void *)rig.ticket, (void *)rig.device);

  /* The address of a variable. */
  long long local = 0;
  refuses((void *)&local, (void *)&local, (void *)&local, (void *)&local, (void *)&local,
          (void *)&local);

  /* Freed handles, while everything that they were made from is alive. */
  struct rig live = rig;
  set_up(BYTES, BYTES);
  struct rig stale = rig;
  tear_down();
  rig = live;
  refuses(stale.device, stale.pool, stale.stream, stale.buffer, stale.gpu, stale.ticket);

  /* Freed twice. The second time is refused, also if the slot has a new object. */
  set_up(BYTES, BYTES);
  REFUSED(INVALID_HANDLE, pinlane_device_free(stale.device));
  REFUSED(INVALID_HANDLE, pinlane_pool_free(stale.pool));
  REFUSED(INVALID_HANDLE, pinlane_stream_free(stale.stream));
  REFUSED(INVALID_HANDLE, pinlane_buffer_free(stale.buffer));
  REFUSED(INVALID_HANDLE, pinlane_device_buffer_free(stale.gpu));
  REFUSED(INVALID_HANDLE, pinlane_ticket_free(stale.ticket));
  tear_down();
  rig = live;

  OK(pinlane_device_free(NULL));
  OK(pinlane_pool_free(NULL));
  OK(pinlane_stream_free(NULL));
  OK(pinlane_buffer_free(NULL));
  OK(pinlane_device_buffer_free(NULL));
  OK(pinlane_ticket_free(NULL));
}

static void c_rule_02_outputs_are_checked_and_written_on_success_only(void) {
  REFUSED(INVALID_VALUE, pinlane_device_open(0, NULL));
  REFUSED(INVALID_VALUE, pinlane_device_open_or_emulated(NULL));
  REFUSED(INVALID_VALUE, pinlane_emulator_create(NULL, NULL, 1));
  REFUSED(INVALID_VALUE, pinlane_device_count(NULL));
  REFUSED(INVALID_VALUE, pinlane_device_name(rig.device, NULL, 8));
  char letter = 'x';
  REFUSED(INVALID_VALUE, pinlane_device_name(rig.device, &letter, 0));
  size_t size = 77;
  REFUSED(INVALID_VALUE, pinlane_device_memory_info(rig.device, &size, NULL));
  EXPECT(size == 77 && letter == 'x');
  REFUSED(INVALID_VALUE, pinlane_buffer_alloc(rig.pool, 1, NULL));
  REFUSED(INVALID_VALUE, pinlane_buffer_read(rig.buffer, NULL));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_alloc(rig.device, 1, NULL));

  /* Misaligned outputs are refused and not written. */
  _Alignas(16) char raw[32], before[32];
  memset(raw, 0x5a, sizeof raw);
  memcpy(before, raw, sizeof raw);
  void *off = raw + 1;
  REFUSED(INVALID_VALUE, pinlane_emulator_create(NULL, off, 1));
  REFUSED(INVALID_VALUE, pinlane_pool_create(rig.device, NULL, off));
  REFUSED(INVALID_VALUE, pinlane_pool_create(rig.device, off, &rig.pool));
  REFUSED(INVALID_VALUE, pinlane_pool_clone(rig.pool, off));
  REFUSED(INVALID_VALUE, pinlane_pool_is_same(rig.pool, rig.pool, off));
  REFUSED(INVALID_VALUE, pinlane_pool_get_stats(rig.pool, off));
  REFUSED(INVALID_VALUE, pinlane_pool_get_class_stats(rig.pool, off, 1, &size));
  REFUSED(INVALID_VALUE, pinlane_pool_get_class_stats(rig.pool, NULL, 0, off));
  REFUSED(INVALID_VALUE, pinlane_pool_trim(rig.pool, 0, off));
  REFUSED(INVALID_VALUE, pinlane_pool_allocate(rig.pool, 1, 1, off));
  REFUSED(INVALID_VALUE, pinlane_buffer_alloc_aligned(rig.pool, 1, 1, off));
  REFUSED(INVALID_VALUE, pinlane_buffer_alloc_timeout(rig.pool, 1, 1, off));
  REFUSED(INVALID_VALUE, pinlane_buffer_alloc(rig.pool, 1, off));
  REFUSED(INVALID_VALUE, pinlane_buffer_register(rig.device, raw, sizeof raw, off));
  REFUSED(INVALID_VALUE, pinlane_buffer_write(rig.buffer, off));
  REFUSED(INVALID_VALUE, pinlane_buffer_size(rig.buffer, off));
  REFUSED(INVALID_VALUE, pinlane_ticket_is_done(rig.ticket, off));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, 1, "x", 1, off));
  EXPECT(size == 77 && memcmp(raw, before, sizeof raw) == 0);
}

static void c_rule_06_unknown_sizes_values_and_flags_are_refused(void) {
  pinlane_device *device = NULL;
  pinlane_emulator_options machine = PINLANE_EMULATOR_OPTIONS_INIT;
  REFUSED(INVALID_VALUE, pinlane_emulator_create(&machine, &device, 0));
  REFUSED(INVALID_VALUE, pinlane_emulator_create(&machine, &device, 65));
  machine.execution = 5;
  REFUSED(INVALID_VALUE, pinlane_emulator_create(&machine, &device, 1));
  machine.execution = PINLANE_EXECUTION_EAGER;
  machine.flags = UINT32_C(1) << 31;
  REFUSED(INVALID_VALUE, pinlane_emulator_create(&machine, &device, 1));
  machine.flags = 0;
  machine.size++;
  REFUSED(INVALID_VALUE, pinlane_emulator_create(&machine, &device, 1));
  EXPECT(device == NULL);

  pinlane_stream *stream = NULL;
  pinlane_stream_options lane = PINLANE_STREAM_OPTIONS_INIT;
  lane.flags = 2;
  REFUSED(INVALID_VALUE, pinlane_stream_create(rig.device, &lane, &stream));
  lane.flags = PINLANE_STREAM_BLOCKING;
  lane.size = 0;
  REFUSED(INVALID_VALUE, pinlane_stream_create(rig.device, &lane, &stream));
  EXPECT(stream == NULL);
  lane.size = sizeof lane;
  OK(pinlane_stream_create(rig.device, &lane, &stream));
  OK(pinlane_stream_free(stream));
}

/* The function writes the macro's values, and nothing after them. */
#define INITIALISES(type, macro)                                                                   \
  do {                                                                                             \
    const type by_macro = macro;                                                                   \
    type made[2];                                                                                  \
    memset(made, 0x5a, sizeof made);                                                               \
    const type before = made[1];                                                                   \
    OK(type##_init(made, sizeof made[0]));                                                         \
    EXPECT(memcmp(&made[0], &by_macro, sizeof by_macro) == 0);                                     \
    EXPECT(memcmp(&made[1], &before, sizeof before) == 0);                                         \
    made[0] = before;                                                                              \
    REFUSED(INVALID_VALUE, type##_init(NULL, sizeof made[0]));                                     \
    REFUSED(INVALID_VALUE, type##_init((void *)((char *)made + 1), sizeof made[0]));               \
    REFUSED(INVALID_VALUE, type##_init(made, 0));                                                  \
    REFUSED(INVALID_VALUE, type##_init(made, sizeof made[0] - 1));                                 \
    REFUSED(INVALID_VALUE, type##_init(made, sizeof made[0] + 1));                                 \
    REFUSED(INVALID_VALUE, type##_init(made, SIZE_MAX));                                           \
    EXPECT(memcmp(&made[0], &before, sizeof before) == 0);                                         \
  } while (0)

static void c_rule_15_init_functions_write_what_the_macros_hold(void) {
  INITIALISES(pinlane_emulator_options, PINLANE_EMULATOR_OPTIONS_INIT);
  INITIALISES(pinlane_emulator_usage, PINLANE_EMULATOR_USAGE_INIT);
  INITIALISES(pinlane_stream_options, PINLANE_STREAM_OPTIONS_INIT);
  INITIALISES(pinlane_pool_options, PINLANE_POOL_OPTIONS_INIT);
  INITIALISES(pinlane_pool_stats, PINLANE_POOL_STATS_INIT);
  INITIALISES(pinlane_dlpack_options, PINLANE_DLPACK_OPTIONS_INIT);
  INITIALISES(pinlane_batch_options, PINLANE_BATCH_OPTIONS_INIT);
  INITIALISES(pinlane_staging_options, PINLANE_STAGING_OPTIONS_INIT);
  INITIALISES(pinlane_copy_team_options, PINLANE_COPY_TEAM_OPTIONS_INIT);
  INITIALISES(pinlane_producer, PINLANE_PRODUCER_INIT);
  INITIALISES(pinlane_prefetch_options, PINLANE_PREFETCH_OPTIONS_INIT);
  INITIALISES(pinlane_prefetch_progress, PINLANE_PREFETCH_PROGRESS_INIT);
}

static void c_rule_15_spare_members_of_elements_are_0(void) {
  pinlane_ticket *ticket = NULL;
  const pinlane_device_copy copies[2] = {{.bytes = 0}, {.reserved = 1}};
  REFUSED(INVALID_VALUE, pinlane_copy_batch(rig.stream, copies, 2, &ticket));
  EXPECT(strstr(pinlane_last_error(), "number 1") != NULL);
  EXPECT(ticket == NULL);
}

static void bad_ranges(void) {
  pinlane_stream *s = rig.stream;
  pinlane_ticket *ticket = NULL, **t = &ticket;
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_upload(s, rig.buffer, 1, rig.gpu, 0, BYTES, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_upload(s, rig.buffer, 0, rig.gpu, 1, BYTES, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_upload(s, rig.buffer, SIZE_MAX, rig.gpu, 0, 2, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_download(s, rig.gpu, 2, rig.buffer, 0, SIZE_MAX, t));
  REFUSED(OUT_OF_RANGE, pinlane_device_buffer_fill(s, rig.gpu, BYTES + 1, 0, "x", 1, t));
  REFUSED(LENGTH_MISMATCH, pinlane_device_buffer_fill(s, rig.gpu, 0, 7, "xy", 2, t));
  REFUSED(LENGTH_MISMATCH, pinlane_device_buffer_fill(s, rig.gpu, 0, 7, "xy", 0, t));
  char pattern[65] = {0};
  REFUSED(UNSUPPORTED, pinlane_device_buffer_fill(s, rig.gpu, 0, 65, pattern, 65, t));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_fill(s, rig.gpu, 0, 8, NULL, 8, t));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_copy(s, rig.gpu, 0, rig.gpu, 8, 8, t));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_checksum(s, rig.gpu, 0, 8, rig.gpu, 8, t));
  REFUSED(INVALID_VALUE, pinlane_device_buffer_checksum(s, rig.gpu, 0, 8, rig.gpu2, 4, t));
  REFUSED(INVALID_VALUE, pinlane_upload(s, rig.buffer, 0, NULL, 8, t));
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_upload(s, rig.buffer, 0, rig.other_gpu, 0, 8, t));
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_fill(rig.other_stream, rig.gpu, 0, 8, "x", 1, t));

  /* Objects of another machine cannot be ordered with this one's. */
  pinlane_device *elsewhere = NULL;
  pinlane_stream *foreign = NULL;
  OK(pinlane_emulator_create(NULL, &elsewhere, 1));
  OK(pinlane_stream_create(elsewhere, NULL, &foreign));
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_upload(foreign, rig.buffer, 0, rig.gpu, 0, 8, t));
  REFUSED(WRONG_DEVICE, pinlane_buffer_acquire(rig.buffer, foreign));
  REFUSED(WRONG_DEVICE, pinlane_buffer_record_use(rig.buffer, foreign));
  REFUSED(WRONG_DEVICE, pinlane_device_buffer_record_use(rig.gpu, foreign));
  OK(pinlane_stream_free(foreign));
  OK(pinlane_device_free(elsewhere));
  REFUSED(INVALID_VALUE, pinlane_stream_busy(s, UINT64_MAX, t));
  uint64_t sum = 77;
  REFUSED(INVALID_VALUE, pinlane_checksum(NULL, 1, &sum));
  EXPECT(ticket == NULL && sum == 77);
  OK(pinlane_checksum(NULL, 0, &sum));
  OK(pinlane_device_buffer_upload(s, rig.buffer, BYTES, rig.gpu, BYTES, 0, NULL));
}

static void limits_of_device_memory(void) {
  pinlane_device_buffer *gpu = NULL;
  REFUSED(OUT_OF_DEVICE_MEMORY, pinlane_device_buffer_alloc(rig.device, 1 << 30, &gpu));
  EXPECT(pinlane_last_cuda_error() == 2); /* cudaErrorMemoryAllocation */
  EXPECT(gpu == NULL);
  REFUSED(NO_DEVICE, pinlane_device_open(9999, &rig.device));
}

int main(void) {
  set_up(BYTES, BYTES);
  versions_and_names();
  c_rule_03_handles_that_are_wrong_are_refused();
  c_rule_02_outputs_are_checked_and_written_on_success_only();
  c_rule_06_unknown_sizes_values_and_flags_are_refused();
  c_rule_15_init_functions_write_what_the_macros_hold();
  c_rule_15_spare_members_of_elements_are_0();
  bad_ranges();
  limits_of_device_memory();
  tear_down();
  return verdict("the C interface");
}
