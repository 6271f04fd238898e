/* The rig with large buffers, for the tests of copies. */

#ifndef PINLANE_TESTS_COPY_RIG_H
#define PINLANE_TESTS_COPY_RIG_H

#include "rig.h"

#include <stdlib.h>

enum { LARGE = 3 << 20, PINNED = 1 << 16 };

static void set_up_copies(void) {
  set_up(PINNED, LARGE);
  OK(pinlane_device_buffer_alloc(rig.device, LARGE, &rig.lent));
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

static void tear_down_copies(void) {
  OK(pinlane_device_buffer_free(rig.lent));
  tear_down();
  free(rig.host);
  free(rig.back);
}

#endif
