/* The statistics of pools as texts, and the parents of objects. */

#include "check.h"

#include <stdint.h>
#include <string.h>

#define PAGE 4096

static pinlane_device *device;

static pinlane_pool *pool_with_budget(size_t bytes) {
  pinlane_pool_options options = PINLANE_POOL_OPTIONS_INIT;
  options.max_bytes = bytes;
  pinlane_pool *pool = NULL;
  OK(pinlane_pool_create(device, &options, &pool));
  return pool;
}

/* The statistics as a text: whole, cut off, and only their length. */
static void reports(void) {
  pinlane_pool *pool = pool_with_budget(16 * PAGE);
  pinlane_buffer *buffer = NULL;
  OK(pinlane_buffer_alloc(pool, PAGE, &buffer));
  char text[16384], cut[8] = "", small[5] = "";
  size_t needed = 0;
  OK(pinlane_pool_stats_text(pool, PINLANE_STATS_TEXT, NULL, text, sizeof text, &needed));
  EXPECT(needed == strlen(text) + 1 && strstr(text, "4 KiB live") != NULL);
  OK(pinlane_pool_stats_text(pool, PINLANE_STATS_TEXT, NULL, cut, sizeof cut, &needed));
  EXPECT(strlen(cut) == 7 && strncmp(cut, text, 7) == 0 && needed == strlen(text) + 1);

  OK(pinlane_pool_stats_text(pool, PINLANE_STATS_JSON, "no matter", text, sizeof text, NULL));
  EXPECT(text[0] == '{' && strstr(text, "\"live_bytes\":4096,") != NULL);
  EXPECT(strstr(text, "\"classes\":[{\"block_bytes\":4096,") != NULL);

  const char *const live = "\npinlane_pool_live_bytes{pool=\"a\\\\b\"} 4096\n";
  const int32_t prometheus = PINLANE_STATS_PROMETHEUS;
  OK(pinlane_pool_stats_text(pool, prometheus, "a\\b", NULL, 0, &needed));
  EXPECT(needed < sizeof text);
  OK(pinlane_pool_stats_text(pool, prometheus, "a\\b", text, needed, NULL));
  EXPECT(strlen(text) == needed - 1 && strstr(text, live) != NULL);
  EXPECT(strstr(text, "# TYPE pinlane_pool_hits_total counter\n") != NULL);
  OK(pinlane_pool_stats_text(pool, prometheus, NULL, text, sizeof text, NULL));
  EXPECT(strstr(text, "\npinlane_pool_live_bytes{pool=\"\"} 4096\n") != NULL);

  strcpy(small, "as");
  needed = 77;
  size_t *const off = (void *)((char *)&needed + 1);
  REFUSED(INVALID_VALUE, pinlane_pool_stats_text(pool, 3, NULL, small, 5, &needed));
  REFUSED(INVALID_VALUE, pinlane_pool_stats_text(pool, -1, NULL, small, 5, &needed));
  REFUSED(INVALID_VALUE, pinlane_pool_stats_text(pool, 0, NULL, NULL, 5, &needed));
  REFUSED(INVALID_VALUE, pinlane_pool_stats_text(pool, 0, NULL, small, 5, off));
  REFUSED(INVALID_HANDLE, pinlane_pool_stats_text(NULL, 0, NULL, small, 5, &needed));
  EXPECT(needed == 77 && strcmp(small, "as") == 0);
  OK(pinlane_buffer_free(buffer));
  OK(pinlane_pool_free(pool));
}

/// Several pools in one response, which describes each metric once.
static void reports_of_several_pools(void) {
  pinlane_pool *one = pool_with_budget(16 * PAGE), *other = pool_with_budget(8 * PAGE), *found;
  pinlane_buffer *buffer = NULL;
  OK(pinlane_buffer_alloc(one, PAGE, &buffer));
  const pinlane_pool *const pools[] = {one, other}, *const wrong[] = {one, NULL};
  const char *const names[] = {"up", "down"}, *const twice[] = {"up", "up"};
  const char *const unnamed[] = {"up", NULL};
  char text[16384];
  size_t needed = 0;
  OK(pinlane_pools_prometheus(pools, names, 2, text, sizeof text, &needed));
  EXPECT(needed == strlen(text) + 1);
  const char *const both = "# TYPE pinlane_pool_live_bytes gauge\n"
                           "pinlane_pool_live_bytes{pool=\"up\"} 4096\n"
                           "pinlane_pool_live_bytes{pool=\"down\"} 0\n";
  EXPECT(strstr(text, both) != NULL);
  const char *const once = strstr(text, "# TYPE pinlane_pool_hits_total");
  EXPECT(once != NULL && strstr(once + 1, "# TYPE pinlane_pool_hits_total") == NULL);
  OK(pinlane_pools_prometheus(NULL, NULL, 0, text, sizeof text, &needed));
  EXPECT(needed == 1 && text[0] == '\0');
  REFUSED(INVALID_VALUE, pinlane_pools_prometheus(pools, twice, 2, text, sizeof text, NULL));
  REFUSED(INVALID_VALUE, pinlane_pools_prometheus(pools, unnamed, 2, text, sizeof text, NULL));
  REFUSED(INVALID_VALUE, pinlane_pools_prometheus(NULL, names, 2, text, sizeof text, NULL));
  REFUSED(INVALID_VALUE, pinlane_pools_prometheus(pools, NULL, 2, text, sizeof text, NULL));
  REFUSED(INVALID_VALUE, pinlane_pools_prometheus(pools, names, 2, NULL, 1, NULL));
  REFUSED(INVALID_HANDLE, pinlane_pools_prometheus(wrong, names, 2, text, sizeof text, NULL));

  // A buffer returns its pool as long as the pool has a handle.
  int32_t same = 0;
  OK(pinlane_buffer_pool(buffer, &found));
  OK(pinlane_pool_is_same(found, one, &same));
  EXPECT(same == 1 && found != one);
  OK(pinlane_pool_free(one));
  OK(pinlane_pool_free(found));
  REFUSED(INVALID_VALUE, pinlane_buffer_pool(buffer, &found));
  REFUSED(INVALID_VALUE, pinlane_buffer_pool(buffer, NULL));
  OK(pinlane_buffer_free(buffer));
  REFUSED(INVALID_HANDLE, pinlane_buffer_pool(buffer, &found));
  static char own[64];
  OK(pinlane_buffer_register(device, own, sizeof own, &buffer));
  REFUSED(INVALID_VALUE, pinlane_buffer_pool(buffer, &found));
  OK(pinlane_buffer_free(buffer));
  OK(pinlane_pool_free(other));

  pinlane_stream *stream = NULL;
  pinlane_device *of_stream = NULL;
  OK(pinlane_stream_create(device, NULL, &stream));
  OK(pinlane_stream_device(stream, &of_stream));
  OK(pinlane_device_is_same(device, of_stream, &same));
  EXPECT(same == 1);
  REFUSED(INVALID_VALUE, pinlane_stream_device(stream, NULL));
  OK(pinlane_device_free(of_stream));
  OK(pinlane_stream_free(stream));
  REFUSED(INVALID_HANDLE, pinlane_stream_device(stream, &of_stream));
}

int main(void) {
  OK(pinlane_emulator_create(NULL, &device, 1));
  reports();
  reports_of_several_pools();
  OK(pinlane_device_free(device));
  return verdict("reports in C");
}
