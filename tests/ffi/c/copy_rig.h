/* Two devices of a lazy machine, with large buffers, for the tests of copies. */

#ifndef PINLANE_TESTS_COPY_RIG_H
#define PINLANE_TESTS_COPY_RIG_H

#include "check.h"

#include <stdlib.h>

enum { LARGE = 3 << 20, PINNED = 1 << 16 };

/* `raw` is the address of `lent`: it stands for device memory of the program's own. */
static struct {
  pinlane_device *device, *other_device;
  pinlane_pool *pool;
  pinlane_stream *stream, *other_stream;
  pinlane_buffer *pinned;
  pinlane_device_buffer *gpu, *gpu2, *lent, *other_gpu;
  char *raw;
  char *host, *back; /* LARGE bytes each, of pageable memory */
} rig;

static void set_up(void) {
  pinlane_emulator_options options = PINLANE_EMULATOR_OPTIONS_INIT;
  options.execution = PINLANE_EXECUTION_LAZY;
  options.memory_bytes = (size_t)64 << 20;
  pinlane_device *devices[2] = {NULL, NULL};
  OK(pinlane_emulator_create(&options, devices, 2));
  rig.device = devices[0];
  rig.other_device = devices[1];
  OK(pinlane_pool_create(rig.device, NULL, &rig.pool));
  OK(pinlane_stream_create(rig.device, NULL, &rig.stream));
  OK(pinlane_stream_create(rig.other_device, NULL, &rig.other_stream));
  OK(pinlane_buffer_alloc_zeroed(rig.pool, PINNED, &rig.pinned));
  OK(pinlane_device_buffer_alloc(rig.device, LARGE, &rig.gpu));
  OK(pinlane_device_buffer_alloc(rig.device, LARGE, &rig.gpu2));
  OK(pinlane_device_buffer_alloc(rig.device, LARGE, &rig.lent));
  OK(pinlane_device_buffer_alloc(rig.other_device, LARGE, &rig.other_gpu));
  OK(pinlane_device_buffer_acquire(rig.lent, rig.stream));
  OK(pinlane_stream_synchronize(rig.stream));
  void *raw = NULL;
  OK(pinlane_device_buffer_address(rig.lent, &raw));
  rig.raw = raw;
  rig.host = malloc(LARGE);
  rig.back = malloc(LARGE);
  if (rig.host == NULL || rig.back == NULL) {
    abort();
  }
  for (size_t i = 0; i < LARGE; i++) {
    rig.host[i] = (char)(i * i % 251);
  }
}

static void tear_down(void) {
  OK(pinlane_device_free(rig.device));
  OK(pinlane_device_free(rig.other_device));
  OK(pinlane_pool_free(rig.pool));
  OK(pinlane_stream_free(rig.stream));
  OK(pinlane_stream_free(rig.other_stream));
  OK(pinlane_buffer_free(rig.pinned));
  OK(pinlane_device_buffer_free(rig.gpu));
  OK(pinlane_device_buffer_free(rig.gpu2));
  OK(pinlane_device_buffer_free(rig.lent));
  OK(pinlane_device_buffer_free(rig.other_gpu));
  free(rig.host);
  free(rig.back);
}

#endif
