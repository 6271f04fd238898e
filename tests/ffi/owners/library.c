/* A watching machine of the library, with another handler of SIGSEGV: `OWNER MOMENT`. C++ compiles
   it too. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "owner.h"

#include <pinlane/pinlane.h>

static pinlane_device *device;
static pinlane_emulator *machine;
static pinlane_stream *stream;
static pinlane_buffer *buffer;
static pinlane_device_buffer *gpu;

static void must(pinlane_status status) {
  if (status != PINLANE_STATUS_OK) {
    fprintf(stderr, "%s\n", pinlane_last_error());
    exit(2);
  }
}

static void starts_copy(void) {
  must(pinlane_device_buffer_upload(stream, buffer, 0, gpu, 0, 100, NULL));
}

static void waits(void) { must(pinlane_stream_synchronize(stream)); }

static void calls(void) {
  size_t free_bytes = 0, total_bytes = 0;
  must(pinlane_device_memory_info(device, &free_bytes, &total_bytes));
}

static int findings(void) {
  size_t count = 0;
  must(pinlane_emulator_finding_count(machine, &count));
  return (int)count;
}

int main(int count, char **arguments) {
  if (count != 3 || !choose_owner(arguments[1])) return 2;
  if (strcmp(arguments[2], "before") == 0 || strcmp(arguments[2], "removed") == 0) install_owner();
  pinlane_emulator_options options = PINLANE_EMULATOR_OPTIONS_INIT;
  options.flags = PINLANE_EMULATOR_WATCH_HOST;
  pinlane_pool *pool = NULL;
  void *memory = NULL;
  must(pinlane_emulator_create(&options, &device, 1));
  must(pinlane_device_emulator(device, &machine));
  must(pinlane_pool_create(device, NULL, &pool));
  must(pinlane_stream_create(device, NULL, &stream));
  must(pinlane_buffer_alloc_zeroed(pool, PAGE, &buffer));
  must(pinlane_device_buffer_alloc(device, PAGE, &gpu));
  must(pinlane_buffer_address(buffer, &memory));
  const struct program program = {(char *)memory, starts_copy, waits, calls, findings};
  return runs(&program, arguments[2], 1);
}
