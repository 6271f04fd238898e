/* Two devices of a lazy machine, and one object of each kind on the first. */

#ifndef PINLANE_TESTS_RIG_H
#define PINLANE_TESTS_RIG_H

#include "check.h"

static struct rig {
  pinlane_device *device, *other_device;
  pinlane_pool *pool;
  pinlane_stream *stream, *other_stream;
  pinlane_buffer *buffer;
  pinlane_device_buffer *gpu, *gpu2, *other_gpu;
  pinlane_ticket *ticket;
  /* For copy_rig.h. `raw` is the address of `lent`, the program's own device memory. */
  pinlane_device_buffer *lent;
  char *raw;
  char *host, *back; /* LARGE bytes each, of pageable memory */
} rig;
enum { BYTES = 4096 };

/* The sizes of `buffer`, and of each buffer on a device. */
static void set_up(size_t pinned, size_t bytes) {
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
  OK(pinlane_buffer_alloc_zeroed(rig.pool, pinned, &rig.buffer));
  OK(pinlane_device_buffer_alloc(rig.device, bytes, &rig.gpu));
  OK(pinlane_device_buffer_alloc(rig.device, bytes, &rig.gpu2));
  OK(pinlane_device_buffer_alloc(rig.other_device, bytes, &rig.other_gpu));
  OK(pinlane_stream_record(rig.stream, &rig.ticket));
}

/* Frees parents before the objects that were made from them: any order is right. */
static void tear_down(void) {
  OK(pinlane_device_free(rig.device));
  OK(pinlane_device_free(rig.other_device));
  OK(pinlane_pool_free(rig.pool));
  OK(pinlane_stream_free(rig.stream));
  OK(pinlane_stream_free(rig.other_stream));
  OK(pinlane_buffer_free(rig.buffer));
  OK(pinlane_device_buffer_free(rig.gpu));
  OK(pinlane_device_buffer_free(rig.gpu2));
  OK(pinlane_device_buffer_free(rig.other_gpu));
  OK(pinlane_ticket_free(rig.ticket));
}

#endif
