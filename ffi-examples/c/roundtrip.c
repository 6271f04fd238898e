/* A first copy: data goes to the device and back, in C99. The device is GPU 0, or an emulated one
 * where there is no GPU. */

#include <pinlane/pinlane.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 1 << 20, HEAD = 1000 };

/* If a call fails, prints its message and jumps to the clean-up, which frees every handle. Freeing
 * NULL is a no-op. */
#define CHECK(call)                                                                                \
  do {                                                                                             \
    if ((call) != PINLANE_STATUS_OK) {                                                             \
      fprintf(stderr, "%s\n", pinlane_last_error());                                               \
      goto cleanup;                                                                                \
    }                                                                                              \
  } while (0)

/* The expected contents of the buffer at the end. */
static uint32_t expected(size_t i) { return i < HEAD ? 7u : (uint32_t)i * 2654435761u; }

int main(void) {
  const size_t bytes = COUNT * sizeof(uint32_t);
  const uint32_t seven = 7;
  int exit_code = 1;

  pinlane_device *device = NULL;
  pinlane_pool *pool = NULL;
  pinlane_stream *stream = NULL;
  pinlane_buffer *host = NULL, *sum = NULL;
  pinlane_device_buffer *gpu = NULL, *gpu_sum = NULL;

  CHECK(pinlane_device_open_or_emulated(&device));
  char name[256];
  CHECK(pinlane_device_name(device, name, sizeof name));

  pinlane_pool_options options = PINLANE_POOL_OPTIONS_INIT;
  options.max_bytes = (size_t)64 << 20;
  CHECK(pinlane_pool_create(device, &options, &pool));
  CHECK(pinlane_stream_create(device, NULL, &stream));

  CHECK(pinlane_buffer_alloc(pool, bytes, &host));
  CHECK(pinlane_buffer_alloc(pool, sizeof(uint64_t), &sum));
  CHECK(pinlane_device_buffer_alloc(device, bytes, &gpu));
  CHECK(pinlane_device_buffer_alloc(device, sizeof(uint64_t), &gpu_sum));

  void *data = NULL;
  CHECK(pinlane_buffer_write(host, &data));
  for (size_t i = 0; i < COUNT; i++) {
    ((uint32_t *)data)[i] = (uint32_t)i * 2654435761u;
  }

  /* None of these calls blocks. The device executes them in this order. */
  CHECK(pinlane_device_buffer_upload(stream, host, 0, gpu, 0, bytes, NULL));
  CHECK(
      pinlane_device_buffer_fill(stream, gpu, 0, HEAD * sizeof seven, &seven, sizeof seven, NULL));
  CHECK(pinlane_device_buffer_checksum(stream, gpu, 0, bytes, gpu_sum, 0, NULL));
  CHECK(pinlane_device_buffer_download(stream, gpu, 0, host, 0, bytes, NULL));
  CHECK(pinlane_device_buffer_download(stream, gpu_sum, 0, sum, 0, sizeof(uint64_t), NULL));

  /* This waits for the copies into the buffer. */
  const void *result = NULL, *device_sum = NULL;
  CHECK(pinlane_buffer_read(host, &result));
  CHECK(pinlane_buffer_read(sum, &device_sum));
  for (size_t i = 0; i < COUNT; i++) {
    if (((const uint32_t *)result)[i] != expected(i)) {
      fprintf(stderr, "element %zu is wrong\n", i);
      goto cleanup;
    }
  }
  uint64_t host_sum = 0;
  CHECK(pinlane_checksum(result, bytes, &host_sum));
  if (memcmp(&host_sum, device_sum, sizeof host_sum) != 0) {
    fprintf(stderr, "the checksums of host and device differ\n");
    goto cleanup;
  }

  pinlane_pool_stats stats = PINLANE_POOL_STATS_INIT;
  CHECK(pinlane_pool_get_stats(pool, &stats));
  printf("%s: %zu bytes there and back, bit for bit, checksum %016" PRIx64 "\n", name, bytes,
         host_sum);
  printf("pool: %zu of %zu bytes page-locked\n", stats.committed_bytes, stats.max_bytes);
  exit_code = 0;

cleanup:
  pinlane_device_buffer_free(gpu_sum);
  pinlane_device_buffer_free(gpu);
  pinlane_buffer_free(sum);
  pinlane_buffer_free(host);
  pinlane_stream_free(stream);
  pinlane_pool_free(pool);
  pinlane_device_free(device);
  return exit_code;
}
