/* The tensors of a small checkpoint go from their file to the device and back, in C99.
 *
 *   file --one call, many ranges--> device --one batch--> pageable memory
 *
 * A callback checks each tensor as soon as it has arrived. The device is GPU 0, or an emulated one
 * where there is no GPU. */

#include <pinlane/pinlane.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 300, HEADER = 64 };

#define CHECK(call)                                                                                \
  do {                                                                                             \
    if ((call) != PINLANE_STATUS_OK) {                                                             \
      fprintf(stderr, "%s\n", pinlane_last_error());                                               \
      goto cleanup;                                                                                \
    }                                                                                              \
  } while (0)

/* Mostly small, as biases and norms are, and a few large ones. */
static size_t tensor_bytes(size_t tensor) { return tensor % 50 == 0 ? 400000 : 64 + tensor * 4; }

/* The byte of the file at an offset. */
static unsigned char byte_at(size_t offset) { return (unsigned char)(offset * 2654435761u >> 13); }

static int write_file(const char *path, size_t bytes) {
  FILE *file = fopen(path, "wb");
  if (file == NULL) {
    return 0;
  }
  int written = 1;
  for (size_t offset = 0; offset < bytes; offset++) {
    written = written && fputc(byte_at(offset), file) != EOF;
  }
  return fclose(file) == 0 && written;
}

/* The state of the callback. */
struct arrivals {
  const size_t *starts;
  size_t count, wrong;
};

/* Runs on the thread that downloads, while other tensors are in flight. */
static int32_t tensor_landed(void *user, size_t number, const void *data, size_t bytes) {
  struct arrivals *arrivals = user;
  const unsigned char *got = data;
  size_t wrong = 0;
  for (size_t i = 0; i < bytes; i++) {
    wrong += got[i] != byte_at(arrivals->starts[number] + i);
  }
  arrivals->count++;
  arrivals->wrong += wrong;
  return wrong != 0; /* not 0: do not call me for the others */
}

int main(int argc, char **argv) {
  const char *path = argc > 1 ? argv[1] : "pinlane-checkpoint.tmp";
  static pinlane_file_range ranges[TENSORS];
  static pinlane_copy copies[TENSORS];
  static size_t starts[TENSORS];
  int exit_code = 1;

  pinlane_device *device = NULL;
  pinlane_stream *stream = NULL;
  pinlane_file *file = NULL;
  pinlane_device_buffer *weights = NULL;
  unsigned char *back = NULL;

  size_t bytes = 0;
  for (size_t i = 0; i < TENSORS; i++) {
    starts[i] = HEADER + bytes;
    bytes += tensor_bytes(i);
  }
  back = malloc(bytes);
  if (back == NULL || !write_file(path, HEADER + bytes)) {
    fprintf(stderr, "cannot write %s\n", path);
    goto cleanup;
  }

  CHECK(pinlane_device_open_or_emulated(&device));
  char name[256];
  CHECK(pinlane_device_name(device, name, sizeof name));
  CHECK(pinlane_stream_create(device, NULL, &stream));
  CHECK(pinlane_device_buffer_alloc(device, bytes, &weights));
  CHECK(pinlane_file_open(path, 0, &file));

  /* From the file, in the order of the file. On the device the tensors lie in reverse order. */
  for (size_t i = 0; i < TENSORS; i++) {
    ranges[i].offset = starts[i];
    ranges[i].bytes = tensor_bytes(i);
    ranges[i].device_buffer = weights;
    ranges[i].device_offset = HEADER + bytes - starts[i] - tensor_bytes(i);
  }
  CHECK(pinlane_upload_file_ranges(stream, file, ranges, TENSORS, NULL));

  /* Back to pageable memory. Members that are not set here are zero. */
  for (size_t i = 0; i < TENSORS; i++) {
    copies[i].device_buffer = weights;
    copies[i].device_offset = ranges[i].device_offset;
    copies[i].dst = back + (starts[i] - HEADER);
    copies[i].bytes = tensor_bytes(i);
  }
  struct arrivals arrivals = {starts, 0, 0};
  CHECK(pinlane_download_batch_each(stream, copies, TENSORS, tensor_landed, &arrivals));
  if (arrivals.count != TENSORS || arrivals.wrong != 0) {
    fprintf(stderr, "%zu bytes are wrong, after %zu tensors\n", arrivals.wrong, arrivals.count);
    goto cleanup;
  }

  /* One slice there and back: the first tensor, with all its bytes inverted. */
  for (size_t i = 0; i < tensor_bytes(0); i++) {
    back[i] = (unsigned char)~back[i];
  }
  CHECK(pinlane_device_buffer_upload_slice(stream, back, weights, 0, tensor_bytes(0), NULL));
  memset(back, 0, tensor_bytes(0));
  CHECK(pinlane_device_buffer_download_slice(stream, weights, 0, back, tensor_bytes(0)));
  for (size_t i = 0; i < tensor_bytes(0); i++) {
    if (back[i] != (unsigned char)~byte_at(HEADER + i)) {
      fprintf(stderr, "byte %zu of the slice is wrong\n", i);
      goto cleanup;
    }
  }

  printf("%s: %d tensors, %zu bytes, from a file and back, bit for bit\n", name, TENSORS, bytes);
  exit_code = 0;

cleanup:
  pinlane_device_buffer_free(weights);
  pinlane_file_free(file);
  pinlane_stream_free(stream);
  pinlane_device_free(device);
  free(back);
  remove(path);
  return exit_code;
}
