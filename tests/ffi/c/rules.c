/* Rules of docs/c-abi.md that no other program tests, by their numbers. C11, on a lazy emulated
 * device. */

#include "rig.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

static void *on_another_thread(void *stream) {
  return pinlane_stream_synchronize(stream) == PINLANE_STATUS_WRONG_THREAD ? stream : NULL;
}

static void c_rule_07_default_streams_are_chosen_by_value(void) {
  pinlane_stream *streams[3] = {NULL, NULL, NULL};
  void *native[3] = {NULL, NULL, NULL};
  for (uintptr_t value = 0; value < 3; value++) {
    OK(pinlane_stream_borrow(rig.device, (void *)value, &streams[value]));
    OK(pinlane_stream_native(streams[value], &native[value]));
    OK(pinlane_device_buffer_fill(streams[value], rig.gpu, 0, 8, "x", 1, NULL));
    OK(pinlane_stream_synchronize(streams[value]));
    pthread_t thread;
    void *refused = NULL;
    if (pthread_create(&thread, NULL, on_another_thread, streams[value]) != 0) {
      abort();
    }
    pthread_join(thread, &refused);
    EXPECT((refused != NULL) == (value == 2)); /* the per-thread one is another thread's there */
    OK(pinlane_stream_free(streams[value]));
  }
  EXPECT(native[0] == native[1] && native[1] != native[2]);
}

static void c_rule_08_a_status_keeps_its_number_and_its_name(void) {
  _Static_assert(sizeof(pinlane_status) == 4, "pinlane_status");
  static const struct {
    pinlane_status status;
    const char *name;
  } statuses[] = {
#define STATUS(name) {PINLANE_STATUS_##name, "PINLANE_STATUS_" #name}
      STATUS(OK),
      STATUS(INVALID_VALUE),
      STATUS(LENGTH_MISMATCH),
      STATUS(OUT_OF_RANGE),
      STATUS(NOT_READY),
      STATUS(BUDGET_EXHAUSTED),
      STATUS(OUT_OF_HOST_MEMORY),
      STATUS(OUT_OF_DEVICE_MEMORY),
      STATUS(NO_DEVICE),
      STATUS(UNSUPPORTED),
      STATUS(WRONG_DEVICE),
      STATUS(WRONG_THREAD),
      STATUS(STREAM_CAPTURING),
      STATUS(FORKED_PROCESS),
      STATUS(DEVICE_LOST),
      STATUS(BUSY),
      STATUS(INVALID_HANDLE),
      STATUS(PANIC),
      STATUS(CUDA),
      STATUS(TIMED_OUT),
      STATUS(IO),
      STATUS(END),
      STATUS(PRODUCER),
      STATUS(CANCELLED),
#undef STATUS
  };
  const pinlane_status count = sizeof statuses / sizeof *statuses;
  for (pinlane_status number = 0; number < count; number++) {
    EXPECT(statuses[number].status == number);
    EXPECT(strcmp(pinlane_status_name(number), statuses[number].name) == 0);
  }
  EXPECT(strcmp(pinlane_status_name(count), "PINLANE_STATUS_UNKNOWN") == 0);
  EXPECT(strcmp(pinlane_status_name(-1), "PINLANE_STATUS_UNKNOWN") == 0);
}

int main(void) {
  set_up(BYTES, BYTES);
  c_rule_07_default_streams_are_chosen_by_value();
  c_rule_08_a_status_keeps_its_number_and_its_name();
  tear_down();
  return verdict("the rules");
}
