/* Two devices of a lazy machine, and one of everything on the first. */

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
} rig;
enum { BYTES = 4096 };

static void set_up(void) {
  pinlane_emulator_options options = PINLANE_EMULATOR_OPTIONS_INIT;
  options.execution = PINLANE_EXECUTION_LAZY;
  options.memory_bytes = 1 << 20;
  pinlane_device *devices[2] = {NULL, NULL};
  OK(pinlane_emulator_create(&options, devices, 2));
  rig.device = devices[0];
  rig.other_device = devices[1];
  OK(pinlane_pool_create(rig.device, NULL, &rig.pool));
  OK(pinlane_stream_create(rig.device, NULL, &rig.stream));
  OK(pinlane_stream_create(rig.other_device, NULL, &rig.other_stream));
  OK(pinlane_buffer_alloc_zeroed(rig.pool, BYTES, &rig.buffer));
  OK(pinlane_device_buffer_alloc(rig.device, BYTES, &rig.gpu));
  OK(pinlane_device_buffer_alloc(rig.device, BYTES, &rig.gpu2));
  OK(pinlane_device_buffer_alloc(rig.other_device, BYTES, &rig.other_gpu));
  OK(pinlane_stream_record(rig.stream, &rig.ticket));
}

/* Frees first what the others are made from: any order is right. */
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
