#include <pinlane/pinlane.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  pinlane_device *device = NULL;
  pinlane_pool *pool = NULL;
  pinlane_stream *stream = NULL;
  pinlane_buffer *buffer = NULL;
  pinlane_device_buffer *gpu = NULL;
  void *in = NULL;
  const void *out = NULL;
  if (pinlane_device_open_or_emulated(&device) || pinlane_pool_create(device, NULL, &pool) ||
      pinlane_stream_create(device, NULL, &stream) ||
      pinlane_buffer_alloc(pool, 1 << 20, &buffer) ||
      pinlane_device_buffer_alloc(device, 1 << 20, &gpu) || pinlane_buffer_write(buffer, &in)) {
    fprintf(stderr, "%s\n", pinlane_last_error());
    return 1;
  }
  memset(in, 7, 1 << 20);
  if (pinlane_device_buffer_upload(stream, buffer, 0, gpu, 0, 1 << 20, NULL) ||
      pinlane_device_buffer_download(stream, gpu, 0, buffer, 0, 1 << 20, NULL) ||
      pinlane_buffer_read(buffer, &out)) { /* waits for the copy */
    fprintf(stderr, "%s\n", pinlane_last_error());
    return 1;
  }
  printf("the last byte is %d\n", ((const unsigned char *)out)[(1 << 20) - 1]);
  /* Handles can be freed in any order, even in the middle of a copy. */
  pinlane_device_buffer_free(gpu);
  pinlane_buffer_free(buffer);
  pinlane_stream_free(stream);
  pinlane_pool_free(pool);
  pinlane_device_free(device);
  return 0;
}
