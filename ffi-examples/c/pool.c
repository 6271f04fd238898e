/* A pool with a budget: allocating, waiting for memory, statistics, giving memory back. C99. The
 * device is GPU 0, or an emulated one where there is no GPU. */

#include <pinlane/pinlane.h>

#include <stdio.h>

enum { MIB = 1 << 20 };

#define CHECK(call)                                                                                \
  do {                                                                                             \
    if ((call) != PINLANE_STATUS_OK) {                                                             \
      fprintf(stderr, "%s\n", pinlane_last_error());                                               \
      goto cleanup;                                                                                \
    }                                                                                              \
  } while (0)

int main(void) {
  int exit_code = 1;
  pinlane_device *device = NULL;
  pinlane_pool *pool = NULL;
  pinlane_buffer *first = NULL, *second = NULL;
  CHECK(pinlane_device_open_or_emulated(&device));

  /* Never more than 64 MiB page-locked. Memory that has been free for a minute goes back to the
   * system. */
  pinlane_pool_options options = PINLANE_POOL_OPTIONS_INIT;
  options.max_bytes = (size_t)64 * MIB;
  options.idle_age_us = (uint64_t)60 * 1000000;
  CHECK(pinlane_pool_create(device, &options, &pool));

  /* The first allocation of a size page-locks memory, which takes long. Later ones reuse it. */
  for (int i = 0; i < 1000; i++) {
    CHECK(pinlane_buffer_alloc(pool, 48 * MIB, &first));
    CHECK(pinlane_buffer_free(first));
    first = NULL;
  }

  /* The budget has no room for a second buffer: fail at once, or wait for at most 1 ms. */
  CHECK(pinlane_buffer_alloc(pool, 48 * MIB, &first));
  if (pinlane_buffer_try_alloc(pool, 48 * MIB, &second) != PINLANE_STATUS_NOT_READY ||
      pinlane_buffer_alloc_timeout(pool, 48 * MIB, 1000, &second) != PINLANE_STATUS_TIMED_OUT) {
    fprintf(stderr, "the budget was exceeded\n");
    goto cleanup;
  }
  printf("as it should be: %s\n", pinlane_last_error());

  pinlane_pool_stats stats = PINLANE_POOL_STATS_INIT;
  CHECK(pinlane_pool_get_stats(pool, &stats));
  printf("%llu allocations reused memory, %llu did not\n", (unsigned long long)stats.hits,
         (unsigned long long)stats.misses);

  size_t released = 0;
  CHECK(pinlane_buffer_free(first));
  first = NULL;
  CHECK(pinlane_pool_trim(pool, 0, &released));
  printf("%zu bytes went back to the system\n", released);
  exit_code = 0;

cleanup:
  pinlane_buffer_free(second);
  pinlane_buffer_free(first);
  pinlane_pool_free(pool);
  pinlane_device_free(device);
  return exit_code;
}
