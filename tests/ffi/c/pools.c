/* Pools: options, budgets, waiting, giving memory back, and memory by its address. C11, on a lazy
 * emulated device: work that nothing waits for stays in flight. */

#include "check.h"

#include <stdint.h>

_Static_assert(sizeof(pinlane_pool_options) == 64, "pinlane_pool_options");
MEMBER(pinlane_pool_options, size, 0);
MEMBER(pinlane_pool_options, max_bytes, 8);
MEMBER(pinlane_pool_options, thread_cache_bytes, 16);
MEMBER(pinlane_pool_options, low_watermark_bytes, 24);
MEMBER(pinlane_pool_options, high_watermark_bytes, 32);
MEMBER(pinlane_pool_options, idle_age_us, 40);
MEMBER(pinlane_pool_options, page_locking, 48);
MEMBER(pinlane_pool_options, growth_threads, 52);
MEMBER(pinlane_pool_options, flags, 56);
MEMBER(pinlane_pool_options, reserved, 60);
_Static_assert(sizeof(pinlane_pool_stats) == 200, "pinlane_pool_stats");
MEMBER(pinlane_pool_stats, size, 0);
MEMBER(pinlane_pool_stats, max_bytes, 8);
MEMBER(pinlane_pool_stats, committed_bytes, 16);
MEMBER(pinlane_pool_stats, peak_bytes, 24);
MEMBER(pinlane_pool_stats, live_bytes, 32);
MEMBER(pinlane_pool_stats, cached_bytes, 40);
MEMBER(pinlane_pool_stats, thread_bytes, 48);
MEMBER(pinlane_pool_stats, in_flight_bytes, 56);
MEMBER(pinlane_pool_stats, quarantined_bytes, 64);
MEMBER(pinlane_pool_stats, hits, 72);
MEMBER(pinlane_pool_stats, thread_hits, 80);
MEMBER(pinlane_pool_stats, misses, 88);
MEMBER(pinlane_pool_stats, growths, 96);
MEMBER(pinlane_pool_stats, growths_total_ns, 104);
MEMBER(pinlane_pool_stats, growths_longest_ns, 112);
MEMBER(pinlane_pool_stats, waits, 120);
MEMBER(pinlane_pool_stats, waits_total_ns, 128);
MEMBER(pinlane_pool_stats, waits_longest_ns, 136);
MEMBER(pinlane_pool_stats, trims, 144);
MEMBER(pinlane_pool_stats, growths_not_registered, 152);
MEMBER(pinlane_pool_stats, growths_small_pages, 160);
MEMBER(pinlane_pool_stats, growths_other_node, 168);
MEMBER(pinlane_pool_stats, threads, 176);
MEMBER(pinlane_pool_stats, waiting, 184);
MEMBER(pinlane_pool_stats, growths_in_parts, 192);
_Static_assert(sizeof(pinlane_class_stats) == 64, "pinlane_class_stats");
MEMBER(pinlane_class_stats, block_bytes, 0);
MEMBER(pinlane_class_stats, blocks, 8);
MEMBER(pinlane_class_stats, live, 16);
MEMBER(pinlane_class_stats, cached, 24);
MEMBER(pinlane_class_stats, in_flight, 32);
MEMBER(pinlane_class_stats, quarantined, 40);
MEMBER(pinlane_class_stats, growths, 48);
MEMBER(pinlane_class_stats, reserved, 56);

enum { PAGE = 4096, MIB = 1 << 20 };

static pinlane_device *device;

static pinlane_pool *pool_of(const pinlane_pool_options *options) {
  pinlane_pool *pool = NULL;
  OK(pinlane_pool_create(device, options, &pool));
  return pool;
}

static pinlane_pool *pool_with_budget(size_t max_bytes) {
  pinlane_pool_options options = PINLANE_POOL_OPTIONS_INIT;
  options.max_bytes = max_bytes;
  return pool_of(&options);
}

static pinlane_pool_stats stats_of(const pinlane_pool *pool) {
  pinlane_pool_stats stats = PINLANE_POOL_STATS_INIT;
  OK(pinlane_pool_get_stats(pool, &stats));
  return stats;
}

static void bad_options(void) {
  pinlane_pool *pool = NULL;
  const pinlane_pool_options good = PINLANE_POOL_OPTIONS_INIT;
#define WITH(change)                                                                               \
  do {                                                                                             \
    pinlane_pool_options options = good;                                                           \
    options.change;                                                                                \
    REFUSED(INVALID_VALUE, pinlane_pool_create(device, &options, &pool));                          \
  } while (0)
  WITH(size = 0);
  WITH(size++);
  WITH(size = SIZE_MAX);
  WITH(max_bytes = 1);
  WITH(max_bytes = PAGE - 1);
  WITH(page_locking = -1);
  WITH(page_locking = 2);
  WITH(flags = 8);
  WITH(flags = UINT32_MAX);
  WITH(reserved = 1);
  WITH(low_watermark_bytes = 1); /* with a high one of 0 */
#undef WITH
  EXPECT(pool == NULL);

  pool = pool_with_budget(MIB);
  pinlane_pool_stats stats = PINLANE_POOL_STATS_INIT;
  stats.size--;
  REFUSED(INVALID_VALUE, pinlane_pool_get_stats(pool, &stats));
  EXPECT(stats.max_bytes == 0 && stats.size == sizeof stats - 1);
  OK(pinlane_pool_free(pool));
}

static void options_are_obeyed(void) {
  /* Options with only the size set, and no options: both mean half of the memory. */
  const pinlane_pool_options none = PINLANE_POOL_OPTIONS_INIT;
  pinlane_pool *pool = pool_of(&none), *other = pool_of(NULL);
  EXPECT(stats_of(pool).max_bytes > PAGE);
  EXPECT(stats_of(pool).max_bytes == stats_of(other).max_bytes);
  EXPECT(stats_of(pool).committed_bytes == 0);
  OK(pinlane_pool_free(pool));
  OK(pinlane_pool_free(other));

  pinlane_pool_options all = PINLANE_POOL_OPTIONS_INIT;
  all.max_bytes = 64 * MIB;
  all.page_locking = PINLANE_PAGE_LOCKING_ALLOCATE;
  all.growth_threads = 2;
  all.idle_age_us = UINT64_MAX;
  all.low_watermark_bytes = 0;
  all.high_watermark_bytes = SIZE_MAX;
  all.flags = PINLANE_POOL_MAPPED | PINLANE_POOL_WRITE_COMBINED | PINLANE_POOL_NO_THREAD_CACHES;
  for (int cached = 0; cached < 2; cached++) {
    pool = pool_of(&all);
    for (int i = 0; i < 100; i++) {
      pinlane_buffer *buffer = NULL;
      OK(pinlane_buffer_alloc(pool, PAGE, &buffer));
      OK(pinlane_buffer_free(buffer));
    }
    const pinlane_pool_stats stats = stats_of(pool);
    EXPECT(stats.max_bytes == 64 * MIB);
    EXPECT(stats.hits + stats.misses == 100 && stats.misses >= 1);
    EXPECT((stats.thread_hits > 50 && stats.thread_bytes > 0) == cached);
    EXPECT(stats.growths >= 1 && stats.growths_longest_ns <= stats.growths_total_ns);
    EXPECT(stats.growths_not_registered == 0 && stats.cached_bytes >= PAGE);
    EXPECT(stats.waiting == 0 && stats.waits == 0);
    OK(pinlane_pool_free(pool));
    all.flags = 0;
    all.thread_cache_bytes = MIB;
  }
}

static void classes(void) {
  pinlane_pool *pool = pool_with_budget(64 * MIB);
  pinlane_class_stats found[3] = {{.block_bytes = 77}};
  size_t count = 77;
  OK(pinlane_pool_get_class_stats(pool, NULL, 0, &count));
  EXPECT(count == 0);

  pinlane_buffer *small = NULL, *large = NULL;
  OK(pinlane_buffer_alloc(pool, 300, &small));
  OK(pinlane_buffer_alloc(pool, 5 * MIB, &large));
  OK(pinlane_pool_get_class_stats(pool, NULL, 0, &count));
  EXPECT(count == 2);
  REFUSED(INVALID_VALUE, pinlane_pool_get_class_stats(pool, NULL, 2, &count));
  REFUSED(INVALID_VALUE, pinlane_pool_get_class_stats(pool, found, 2, NULL));
  EXPECT(found[0].block_bytes == 77);
  found[1].block_bytes = 77;
  OK(pinlane_pool_get_class_stats(pool, found, 1, &count));
  EXPECT(count == 2 && found[0].block_bytes == 512 && found[1].block_bytes == 77);
  OK(pinlane_pool_get_class_stats(pool, found, 3, &count));
  EXPECT(count == 2 && found[1].block_bytes == 5 * MIB);
  OK(pinlane_pool_block_bytes(300, &count));
  EXPECT(count == found[0].block_bytes);
  REFUSED(INVALID_VALUE, pinlane_pool_block_bytes(SIZE_MAX, &count));
  REFUSED(INVALID_VALUE, pinlane_pool_block_bytes(1, NULL));
  EXPECT(count == found[0].block_bytes);
  OK(pinlane_pool_get_class_stats(pool, NULL, 0, &count));
  for (size_t i = 0; i < count; i++) {
    EXPECT(found[i].live == 1 && found[i].live + found[i].cached == found[i].blocks);
    EXPECT(found[i].growths == 1 && found[i].in_flight == 0 && found[i].quarantined == 0);
  }
  OK(pinlane_buffer_free(small));
  OK(pinlane_buffer_free(large));
  OK(pinlane_pool_free(pool));
}

static void budgets_and_waiting(void) {
  pinlane_pool *pool = pool_with_budget(PAGE);
  pinlane_buffer *buffer = NULL, *another = NULL;
  REFUSED(NOT_READY, pinlane_buffer_try_alloc(pool, PAGE, &buffer));
  OK(pinlane_buffer_alloc(pool, PAGE, &buffer));
  REFUSED(BUDGET_EXHAUSTED, pinlane_buffer_alloc(pool, PAGE, &another));
  EXPECT(pinlane_last_cuda_error() == 0);
  REFUSED(TIMED_OUT, pinlane_buffer_alloc_timeout(pool, PAGE, 2000, &another));
  REFUSED(TIMED_OUT, pinlane_buffer_alloc_timeout(pool, PAGE, 0, &another));
  REFUSED(BUDGET_EXHAUSTED, pinlane_buffer_alloc_timeout(pool, PAGE + 1, UINT64_MAX, &another));
  EXPECT(another == NULL);
  EXPECT(strcmp(pinlane_status_name(PINLANE_STATUS_TIMED_OUT), "PINLANE_STATUS_TIMED_OUT") == 0);
  OK(pinlane_buffer_free(buffer));
  OK(pinlane_buffer_try_alloc(pool, PAGE, &buffer));
  OK(pinlane_buffer_free(buffer));
  OK(pinlane_buffer_alloc_timeout(pool, PAGE, UINT64_MAX, &buffer));
  OK(pinlane_buffer_free(buffer));

  size_t released = 77;
  OK(pinlane_pool_trim(pool, PAGE, &released));
  EXPECT(released == 0 && stats_of(pool).committed_bytes == PAGE);
  OK(pinlane_pool_trim(pool, 0, &released));
  EXPECT(released == PAGE && stats_of(pool).committed_bytes == 0 && stats_of(pool).trims == 1);
  OK(pinlane_pool_trim(pool, 0, NULL));
  OK(pinlane_pool_free(pool));
}

static void alignments(void) {
  pinlane_pool *pool = pool_with_budget(64 * MIB);
  pinlane_buffer *buffer = NULL;
  for (size_t align = 1; align <= 2 * MIB; align *= 2) {
    void *data = NULL;
    OK(pinlane_buffer_alloc_aligned(pool, 100, align, &buffer));
    OK(pinlane_buffer_write(buffer, &data));
    EXPECT((uintptr_t)data % align == 0 && (uintptr_t)data % 256 == 0);
    OK(pinlane_buffer_free(buffer));
    OK(pinlane_pool_allocate(pool, 100, align, &data));
    EXPECT((uintptr_t)data % align == 0 && (uintptr_t)data % 256 == 0);
    OK(pinlane_pool_deallocate(pool, data));
  }
  const size_t bad[] = {0, 3, 4 * MIB, SIZE_MAX};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    void *data = NULL;
    buffer = NULL;
    REFUSED(INVALID_VALUE, pinlane_buffer_alloc_aligned(pool, 100, bad[i], &buffer));
    REFUSED(INVALID_VALUE, pinlane_pool_allocate(pool, 100, bad[i], &data));
    EXPECT(buffer == NULL && data == NULL);
  }
  OK(pinlane_pool_free(pool));
}

static void memory_by_address(void) {
  pinlane_pool *pool = pool_with_budget(MIB), *other = pool_with_budget(MIB);
  void *memory = NULL, *nothing = NULL;
  OK(pinlane_pool_allocate(pool, PAGE, 1, &memory));
  memset(memory, 7, PAGE);
  EXPECT(stats_of(pool).live_bytes == PAGE);
  OK(pinlane_pool_allocate(pool, 0, 1, &nothing)); /* as malloc: a distinct address */
  EXPECT(nothing != NULL && nothing != memory);
  OK(pinlane_pool_deallocate(pool, nothing));

  /* Addresses inside an allocation, of another pool, of a buffer, of the program, and of
   * nothing. */
  REFUSED(INVALID_VALUE, pinlane_pool_deallocate(pool, (char *)memory + 1));
  REFUSED(INVALID_VALUE, pinlane_pool_deallocate(pool, (char *)memory + PAGE - 1));
  REFUSED(INVALID_HANDLE, pinlane_pool_deallocate(other, memory));
  pinlane_buffer *buffer = NULL;
  void *address = NULL;
  OK(pinlane_buffer_alloc(pool, PAGE, &buffer));
  OK(pinlane_buffer_address(buffer, &address));
  REFUSED(INVALID_HANDLE, pinlane_pool_deallocate(pool, address));
  REFUSED(INVALID_HANDLE, pinlane_pool_deallocate(pool, &address));
  REFUSED(INVALID_HANDLE, pinlane_pool_deallocate(pool, (void *)(uintptr_t)1));
  REFUSED(INVALID_HANDLE, pinlane_pool_deallocate(pool, (void *)UINTPTR_MAX));
  OK(pinlane_buffer_free(buffer));
  OK(pinlane_pool_deallocate(pool, NULL));
  REFUSED(INVALID_VALUE, pinlane_pool_allocate(pool, 1, 1, NULL));
  REFUSED(INVALID_VALUE, pinlane_pool_allocate(pool, SIZE_MAX, 1, &nothing));
  REFUSED(BUDGET_EXHAUSTED, pinlane_pool_allocate(pool, MIB, 1, &nothing));
  for (size_t i = 0; i < PAGE; i++) {
    if (((unsigned char *)memory)[i] != 7) {
      EXPECT(!"refused calls change nothing");
      break;
    }
  }

  /* Freed once, by any handle of the pool. */
  pinlane_pool *clone = NULL;
  int32_t same = -1;
  OK(pinlane_pool_clone(pool, &clone));
  OK(pinlane_pool_is_same(pool, clone, &same));
  EXPECT(clone != pool && same == 1);
  OK(pinlane_pool_is_same(other, clone, &same));
  EXPECT(same == 0);
  OK(pinlane_pool_free(pool));
  OK(pinlane_pool_deallocate(clone, memory));
  REFUSED(INVALID_HANDLE, pinlane_pool_deallocate(clone, memory));
  EXPECT(stats_of(clone).live_bytes == 0);
  OK(pinlane_pool_free(clone));
  OK(pinlane_pool_free(other));
}

/* The caller's own work on memory by address. Here pinlane enqueues it. */
static void uses_of_memory(void) {
  pinlane_pool *pool = pool_with_budget(PAGE);
  pinlane_stream *stream = NULL, *foreign = NULL;
  pinlane_device *elsewhere = NULL;
  OK(pinlane_stream_create(device, NULL, &stream));
  OK(pinlane_emulator_create(NULL, &elsewhere, 1));
  OK(pinlane_stream_create(elsewhere, NULL, &foreign));
  void *memory = NULL, *again = NULL;
  OK(pinlane_pool_allocate(pool, PAGE, 1, &memory));
  REFUSED(INVALID_HANDLE, pinlane_pool_record_use(pool, &memory, stream));
  REFUSED(INVALID_HANDLE, pinlane_pool_record_use(pool, NULL, stream));
  REFUSED(WRONG_DEVICE, pinlane_pool_record_use(pool, memory, foreign));
  OK(pinlane_stream_busy(stream, 1000, NULL));
  OK(pinlane_pool_record_use(pool, (char *)memory + 100, stream));
  OK(pinlane_pool_deallocate(pool, memory));
  EXPECT(stats_of(pool).in_flight_bytes == PAGE && stats_of(pool).live_bytes == 0);
  pinlane_buffer *buffer = NULL;
  REFUSED(NOT_READY, pinlane_buffer_try_alloc(pool, PAGE, &buffer));
  REFUSED(INVALID_HANDLE, pinlane_pool_record_use(pool, memory, stream));
  OK(pinlane_pool_allocate(pool, PAGE, 1, &again)); /* waits */
  EXPECT(again == memory && stats_of(pool).in_flight_bytes == 0 && stats_of(pool).waits == 1);
  OK(pinlane_pool_deallocate(pool, again));

  /* Without a recorded use it is reused at once. */
  OK(pinlane_pool_allocate(pool, PAGE, 1, &memory));
  OK(pinlane_pool_deallocate(pool, memory));
  OK(pinlane_buffer_try_alloc(pool, PAGE, &buffer));
  OK(pinlane_buffer_free(buffer));
  OK(pinlane_stream_free(stream));
  OK(pinlane_stream_free(foreign));
  OK(pinlane_device_free(elsewhere));
  OK(pinlane_pool_free(pool));
}

int main(void) {
  pinlane_emulator_options machine = PINLANE_EMULATOR_OPTIONS_INIT;
  machine.execution = PINLANE_EXECUTION_LAZY;
  OK(pinlane_emulator_create(&machine, &device, 1));
  bad_options();
  options_are_obeyed();
  classes();
  budgets_and_waiting();
  alignments();
  memory_by_address();
  uses_of_memory();
  OK(pinlane_device_free(device));
  return verdict("pools in C");
}
