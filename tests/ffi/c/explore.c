/* Exploring a program in C: which runs are made, and the report of the one that fails. */

#define _POSIX_C_SOURCE 200809L /* setenv */

#include "check.h"

#include <stdlib.h>

struct story {
  size_t runs;
  int racing; /* the copy's stream does not wait for the fill's */
  int32_t status;
};

/* Fills on one stream and copies on another. */
static int32_t program(void *user, pinlane_emulator *machine, char *message, size_t capacity) {
  enum { EACH = 64 };
  struct story *story = user;
  story->runs++;
  pinlane_device *device = NULL;
  pinlane_pool *pool = NULL;
  pinlane_buffer *buffer = NULL;
  pinlane_stream *streams[2] = {NULL, NULL};
  pinlane_device_buffer *memory = NULL, *borrowed = NULL;
  void *address = NULL;
  const void *seen = NULL;
  OK(pinlane_emulator_open(machine, 0, &device));
  OK(pinlane_pool_create(device, NULL, &pool));
  OK(pinlane_buffer_alloc(pool, EACH, &buffer));
  OK(pinlane_stream_create(device, NULL, &streams[0]));
  OK(pinlane_stream_create(device, NULL, &streams[1]));
  OK(pinlane_device_buffer_alloc(device, EACH, &memory));
  OK(pinlane_device_buffer_fill(streams[0], memory, 0, EACH, "1", 1, NULL));
  OK(pinlane_stream_synchronize(streams[0]));
  OK(pinlane_device_buffer_address(memory, &address));
  OK(pinlane_device_buffer_borrow(device, address, EACH, &borrowed));
  OK(pinlane_device_buffer_fill(streams[0], memory, 0, EACH, "2", 1, NULL));
  if (!story->racing) {
    OK(pinlane_stream_synchronize(streams[0]));
  }
  OK(pinlane_device_buffer_download(streams[1], borrowed, 0, buffer, 0, EACH, NULL));
  OK(pinlane_buffer_read(buffer, &seen));
  const char last = ((const char *)seen)[EACH - 1];
  OK(pinlane_stream_synchronize(streams[0]));
  OK(pinlane_device_buffer_free(borrowed));
  OK(pinlane_device_buffer_free(memory));
  OK(pinlane_buffer_free(buffer));
  OK(pinlane_stream_free(streams[0]));
  OK(pinlane_stream_free(streams[1]));
  OK(pinlane_pool_free(pool));
  OK(pinlane_device_free(device));
  if (last != '2') {
    snprintf(message, capacity, "the last byte is %c", last);
    return 1;
  }
  return story->status;
}

static void a_race_is_found_in_the_first_run(void) {
  pinlane_exploration options = PINLANE_EXPLORATION_INIT;
  options.flags = PINLANE_EXPLORE_QUIET;
  pinlane_explored explored = PINLANE_EXPLORED_INIT;
  struct story story = {0, 1, 0};
  char report[4096];
  OK(pinlane_explore(&options, program, &story, &explored, report, sizeof report, NULL));
  EXPECT(explored.failed == 1 && explored.complete == 0 && explored.runs == 1);
  EXPECT(explored.findings == 1 && explored.decisions == 0 && explored.seed == 1);
  EXPECT(strstr(report, "Race: ") && strstr(report, "PINLANE_REPLAY=1:eager"));
}

static void wrong_bytes_are_one_decision(void) {
  pinlane_emulator_options machine = PINLANE_EMULATOR_OPTIONS_INIT;
  machine.flags = PINLANE_EMULATOR_NO_RACES;
  pinlane_exploration options = PINLANE_EXPLORATION_INIT;
  options.flags = PINLANE_EXPLORE_QUIET;
  options.machine = &machine;
  pinlane_explored explored = PINLANE_EXPLORED_INIT;
  struct story story = {0, 1, 0};
  char report[4096];
  size_t needed = 0;
  OK(pinlane_explore(&options, program, &story, &explored, report, sizeof report, &needed));
  EXPECT(explored.failed == 1 && explored.runs > 1 && explored.findings == 0);
  EXPECT(explored.decisions == 1 && story.runs > explored.runs);
  EXPECT(needed == strlen(report) + 1);
  EXPECT(strstr(report, "the last byte is 1") && strstr(report, "is held until a wait needs it"));
  const char *replay = strstr(report, "PINLANE_REPLAY=");
  EXPECT(replay != NULL);
  if (!replay) {
    return;
  }
  /* That run alone, through the environment. */
  char value[64];
  snprintf(value, sizeof value, "%s", replay + strlen("PINLANE_REPLAY="));
  setenv("PINLANE_REPLAY", value, 1);
  story.runs = 0;
  OK(pinlane_explore(&options, program, &story, &explored, report, sizeof report, NULL));
  EXPECT(story.runs == 1 && explored.failed == 1 && explored.decisions == 1);
  setenv("PINLANE_REPLAY", "nonsense", 1);
  REFUSED(INVALID_VALUE, pinlane_explore(&options, program, &story, &explored, NULL, 0, NULL));
  setenv("PINLANE_REPLAY", "\xff", 1); /* no text at all */
  REFUSED(INVALID_VALUE, pinlane_explore(&options, program, &story, &explored, NULL, 0, NULL));
  unsetenv("PINLANE_REPLAY");
}

static void a_correct_program_is_run_as_often_as_asked(void) {
  pinlane_exploration options = PINLANE_EXPLORATION_INIT;
  options.runs = 23;
  pinlane_explored explored = PINLANE_EXPLORED_INIT;
  struct story story = {0, 0, 0};
  char report[64] = "?";
  OK(pinlane_explore(&options, program, &story, &explored, report, sizeof report, NULL));
  EXPECT(explored.failed == 0 && explored.complete == 1 && explored.runs == 23);
  EXPECT(story.runs == 23 && report[0] == '\0');
  story.status = 7;
  options.flags = PINLANE_EXPLORE_QUIET;
  OK(pinlane_explore(&options, program, &story, &explored, report, sizeof report, NULL));
  EXPECT(explored.failed == 1 && explored.runs == 1);
  char whole[512];
  OK(pinlane_explore(&options, program, &story, &explored, whole, sizeof whole, NULL));
  EXPECT(strstr(whole, "it returned an error: 7") != NULL);
  options.flags |= PINLANE_EXPLORE_ORDERS;
  story.status = 0;
  options.runs = 0;
  OK(pinlane_explore(&options, program, &story, &explored, NULL, 0, NULL));
  EXPECT(explored.failed == 0 && explored.complete == 1 && explored.runs >= 1);
}

static void what_is_wrong_is_refused(void) {
  pinlane_exploration options = PINLANE_EXPLORATION_INIT;
  pinlane_explored explored = PINLANE_EXPLORED_INIT;
  struct story story = {0, 0, 0};
  REFUSED(INVALID_VALUE, pinlane_explore(NULL, NULL, &story, &explored, NULL, 0, NULL));
  REFUSED(INVALID_VALUE, pinlane_explore(NULL, program, &story, NULL, NULL, 0, NULL));
  options.flags = 4;
  REFUSED(INVALID_VALUE, pinlane_explore(&options, program, &story, &explored, NULL, 0, NULL));
  options.flags = 0;
  options.devices = 0;
  REFUSED(INVALID_VALUE, pinlane_explore(&options, program, &story, &explored, NULL, 0, NULL));
  options.devices = 1;
  options.size--;
  REFUSED(INVALID_VALUE, pinlane_explore(&options, program, &story, &explored, NULL, 0, NULL));
  EXPECT(story.runs == 0);
}

int main(void) {
  a_race_is_found_in_the_first_run();
  wrong_bytes_are_one_decision();
  a_correct_program_is_run_as_often_as_asked();
  what_is_wrong_is_refused();
  return verdict("exploring in C");
}
