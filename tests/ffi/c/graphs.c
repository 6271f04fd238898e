/* Graphs in C: work that is captured once, and the buffers that a graph holds. C11, on a lazy
 * emulated device: work runs only when the program waits. */

#include "rig.h"

#include <stdlib.h>

/* An upload, a copy on the device, and a download, of BYTES each, on three branches. */
static struct step {
  pinlane_buffer *input, *output;
  pinlane_device_buffer *gpu, *gpu2;
  pinlane_graph *graph;
} step;

static void make_buffers(void) {
  OK(pinlane_buffer_alloc(rig.pool, BYTES, &step.input));
  OK(pinlane_buffer_alloc(rig.pool, BYTES, &step.output));
  OK(pinlane_device_buffer_alloc(rig.device, BYTES, &step.gpu));
  OK(pinlane_device_buffer_alloc(rig.device, BYTES, &step.gpu2));
}

static void make_step(void) {
  pinlane_capture *capture = NULL;
  make_buffers();
  OK(pinlane_capture_begin(rig.device, &capture));
  OK(pinlane_capture_upload(capture, step.input, 0, step.gpu, 0, BYTES));
  OK(pinlane_capture_branch(capture, 7));
  OK(pinlane_capture_copy(capture, step.gpu, 0, step.gpu2, 0, BYTES));
  OK(pinlane_capture_branch(capture, UINT32_MAX));
  OK(pinlane_capture_download(capture, step.gpu2, 0, step.output, 0, BYTES));
  OK(pinlane_capture_finish(capture, &step.graph));
}

static void free_step(void) {
  OK(pinlane_graph_free(step.graph));
  OK(pinlane_buffer_free(step.input));
  OK(pinlane_buffer_free(step.output));
  OK(pinlane_device_buffer_free(step.gpu));
  OK(pinlane_device_buffer_free(step.gpu2));
  step.graph = NULL;
}

static void put(pinlane_buffer *buffer, int byte) {
  void *data = NULL;
  OK(pinlane_buffer_write(buffer, &data));
  memset(data, byte, BYTES);
}

static int has(const pinlane_buffer *buffer, int byte) {
  const void *data = NULL;
  OK(pinlane_buffer_read(buffer, &data));
  const unsigned char *const bytes = data;
  return bytes[0] == byte && memcmp(bytes, bytes + 1, BYTES - 1) == 0;
}

static int device_has(const pinlane_device_buffer *gpu, int byte) {
  OK(pinlane_device_buffer_download(rig.stream, gpu, 0, rig.buffer, 0, BYTES, NULL));
  return has(rig.buffer, byte);
}

static void each_launch_copies_what_is_there_then(void) {
  make_step();
  size_t bytes = 0;
  OK(pinlane_graph_bytes(step.graph, &bytes));
  EXPECT(bytes == 3 * BYTES);
  for (int round = 1; round < 6; round++) {
    OK(pinlane_graph_lend_buffer(step.graph, step.input));
    put(step.input, round);
    OK(pinlane_graph_launch(step.graph, rig.stream, NULL));
    OK(pinlane_graph_lend_buffer(step.graph, step.output));
    EXPECT(has(step.output, round));
  }
  free_step();
}

/* The handle of a buffer that is lent waits for the launch, in each of its forms. */
static void what_is_lent_waits_for_the_launch(void) {
  pinlane_ticket *ticket = NULL;
  const void *read = NULL;
  void *written = NULL;
  int32_t done = -1;
  make_step();
  OK(pinlane_graph_lend_buffer(step.graph, step.input));
  OK(pinlane_graph_lend_buffer(step.graph, step.input)); /* twice is once */
  put(step.input, 3);
  OK(pinlane_emulator_stall(rig.stream));
  OK(pinlane_graph_launch(step.graph, rig.stream, &ticket));
  OK(pinlane_graph_lend_buffer(step.graph, step.input));
  OK(pinlane_graph_lend_buffer(step.graph, step.output));
  OK(pinlane_graph_lend_device_buffer(step.graph, step.gpu2));
  OK(pinlane_ticket_is_done(ticket, &done));
  EXPECT(done == 0);
  REFUSED(NOT_READY, pinlane_buffer_try_read(step.output, &read));
  REFUSED(NOT_READY, pinlane_buffer_try_write(step.input, &written));
  OK(pinlane_buffer_try_read(step.input, &read));
  /* Work of another stream comes after the launch, and the next launch after that. */
  pinlane_stream *other = NULL;
  OK(pinlane_stream_create(rig.device, NULL, &other));
  OK(pinlane_device_buffer_download(other, step.gpu2, 0, rig.buffer, 0, BYTES, NULL));
  OK(pinlane_device_buffer_fill(other, step.gpu2, 0, BYTES, "x", 1, NULL));
  REFUSED(NOT_READY, pinlane_buffer_try_read(rig.buffer, &read));
  OK(pinlane_graph_launch(step.graph, other, NULL));
  OK(pinlane_emulator_release(rig.stream));
  EXPECT(has(rig.buffer, 3));
  OK(pinlane_graph_lend_device_buffer(step.graph, step.gpu2));
  EXPECT(device_has(step.gpu2, 3));
  OK(pinlane_ticket_wait(ticket));
  OK(pinlane_ticket_free(ticket));
  OK(pinlane_stream_free(other));
  free_step();
}

static void launches_follow_each_other_on_two_streams(void) {
  pinlane_stream *streams[2] = {rig.stream, NULL};
  pinlane_ticket *tickets[2] = {NULL, NULL};
  OK(pinlane_stream_create(rig.device, NULL, &streams[1]));
  make_step();
  for (int round = 1; round < 20; round++) {
    OK(pinlane_graph_lend_buffer(step.graph, step.input));
    put(step.input, round);
    OK(pinlane_graph_launch(step.graph, streams[round % 2], &tickets[0]));
    OK(pinlane_graph_launch(step.graph, streams[(round + 1) % 2], &tickets[1]));
    OK(pinlane_ticket_wait(tickets[1]));
    int32_t done = -1;
    OK(pinlane_ticket_is_done(tickets[0], &done));
    EXPECT(done == 1);
    OK(pinlane_graph_lend_buffer(step.graph, step.output));
    EXPECT(has(step.output, round));
    OK(pinlane_ticket_free(tickets[0]));
    OK(pinlane_ticket_free(tickets[1]));
  }
  OK(pinlane_graph_launch(step.graph, streams[0], NULL));
  free_step(); /* in the middle of a launch */
  OK(pinlane_stream_free(streams[1]));
}

/* From its first capture on nobody else writes a buffer. Those that are only read are shared. */
static void what_a_graph_holds_is_refused_elsewhere(void) {
  const void *read = NULL;
  void *written = NULL;
  make_step();
  OK(pinlane_buffer_read(step.input, &read));
  REFUSED(BUSY, pinlane_buffer_write(step.input, &written));
  EXPECT(strstr(pinlane_last_error(), "pinlane_graph_lend_buffer") != NULL);
  REFUSED(BUSY, pinlane_buffer_read(step.output, &read));
  REFUSED(BUSY, pinlane_device_buffer_fill(rig.stream, step.gpu, 0, 1, "a", 1, NULL));
  REFUSED(BUSY,
          pinlane_device_buffer_download(rig.stream, step.gpu, 0, rig.buffer, 0, 1, NULL));
  pinlane_capture *capture = NULL;
  pinlane_graph *second = NULL;
  OK(pinlane_capture_begin(rig.device, &capture));
  REFUSED(BUSY, pinlane_capture_upload(capture, step.input, 0, step.gpu, 0, BYTES));
  REFUSED(BUSY, pinlane_capture_download(capture, rig.gpu, 0, step.input, 0, BYTES));
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, 1, "a", 1, NULL)); /* not in the capture */
  OK(pinlane_capture_upload(capture, step.input, 0, rig.gpu, 0, BYTES));
  REFUSED(BUSY, pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, 1, "a", 1, NULL));
  OK(pinlane_capture_finish(capture, &second));
  /* Both graphs have to lend the input. */
  OK(pinlane_graph_lend_buffer(step.graph, step.input));
  REFUSED(BUSY, pinlane_buffer_write(step.input, &written));
  OK(pinlane_graph_lend_buffer(second, step.input));
  put(step.input, 9);
  OK(pinlane_graph_launch(second, rig.stream, NULL));
  OK(pinlane_graph_launch(step.graph, rig.stream, NULL));
  OK(pinlane_graph_free(second));
  EXPECT(device_has(rig.gpu, 9));
  free_step();
}

/* A refused call does not make a writer of a buffer that the work only reads. */
static void a_refused_writer_stays_a_reader(void) {
  pinlane_capture *capture = NULL;
  const void *read = NULL;
  make_buffers();
  put(step.input, 3);
  OK(pinlane_capture_begin(rig.device, &capture));
  OK(pinlane_capture_upload(capture, step.input, 0, step.gpu2, 0, BYTES));
  OK(pinlane_capture_copy(capture, step.gpu, 0, step.gpu2, 0, BYTES));
  REFUSED(OUT_OF_RANGE, pinlane_capture_download(capture, step.gpu2, 0, step.input, 1, BYTES));
  OK(pinlane_buffer_read(step.input, &read));
  REFUSED(INVALID_VALUE, pinlane_capture_copy(capture, step.gpu, 0, step.gpu, 1, 2));
  OK(pinlane_device_buffer_download(rig.stream, step.gpu, 0, rig.buffer, 0, 1, NULL));
  /* Nor does one that names it as a writer, and fails because of another buffer. */
  const pinlane_use uses[2] = {{.buffer = step.input, .access = PINLANE_ACCESS_WRITE},
                               {.buffer = rig.buffer, .access = PINLANE_ACCESS_READ}};
  pinlane_foreign *writer = NULL;
  void *native = NULL;
  const pinlane_use other = {.buffer = rig.buffer, .access = PINLANE_ACCESS_WRITE};
  OK(pinlane_foreign_begin(rig.stream, &other, 1, &writer));
  REFUSED(BUSY, pinlane_capture_foreign(capture, uses, 2, &native));
  OK(pinlane_foreign_end(writer, NULL));
  OK(pinlane_buffer_read(step.input, &read));
  OK(pinlane_capture_finish(capture, &step.graph));
  OK(pinlane_buffer_read(step.input, &read));
  free_step();
}

/* A buffer that the work first reads and then writes. */
static void a_reader_becomes_a_writer(void) {
  pinlane_capture *capture = NULL;
  const void *read = NULL;
  make_buffers();
  OK(pinlane_device_buffer_fill(rig.stream, step.gpu, 0, BYTES, "\1", 1, NULL));
  OK(pinlane_capture_begin(rig.device, &capture));
  OK(pinlane_capture_copy(capture, step.gpu, 0, step.gpu2, 0, BYTES));
  const pinlane_use use = {.device_buffer = step.gpu, .access = PINLANE_ACCESS_READ};
  pinlane_foreign *reader = NULL;
  OK(pinlane_foreign_begin(rig.stream, &use, 1, &reader));
  REFUSED(BUSY, pinlane_capture_fill(capture, step.gpu, 0, BYTES, "\2", 1));
  OK(pinlane_foreign_end(reader, NULL));
  OK(pinlane_capture_fill(capture, step.gpu, 0, BYTES, "\2", 1));
  REFUSED(BUSY, pinlane_foreign_begin(rig.stream, &use, 1, &reader));
  OK(pinlane_capture_download(capture, step.gpu, 0, step.output, 0, BYTES));
  OK(pinlane_capture_finish(capture, &step.graph));
  OK(pinlane_graph_launch(step.graph, rig.stream, NULL));
  REFUSED(BUSY, pinlane_buffer_read(step.output, &read));
  OK(pinlane_graph_lend_buffer(step.graph, step.output));
  EXPECT(has(step.output, 2));
  OK(pinlane_graph_lend_device_buffer(step.graph, step.gpu2));
  EXPECT(device_has(step.gpu2, 1));
  free_step();
}

static void parts_of_buffers(void) {
  pinlane_capture *capture = NULL;
  make_buffers();
  put(step.input, 1);
  OK(pinlane_capture_begin(rig.device, &capture));
  OK(pinlane_capture_fill(capture, step.gpu, 0, BYTES, "\5\6", 2));
  OK(pinlane_capture_upload(capture, step.input, 7, step.gpu, 100, 10));
  OK(pinlane_capture_copy(capture, step.gpu, 100, step.gpu, 200, 10)); /* within one buffer */
  REFUSED(INVALID_VALUE, pinlane_capture_copy(capture, step.gpu, 100, step.gpu, 109, 10));
  OK(pinlane_capture_copy(capture, step.gpu, 0, step.gpu, 0, 0)); /* nothing */
  OK(pinlane_capture_download(capture, step.gpu, 199, step.output, 1, 12));
  REFUSED(OUT_OF_RANGE, pinlane_capture_upload(capture, step.input, BYTES, step.gpu, 0, 1));
  REFUSED(OUT_OF_RANGE, pinlane_capture_upload(capture, step.input, 0, step.gpu, SIZE_MAX, 2));
  REFUSED(OUT_OF_RANGE, pinlane_capture_download(capture, step.gpu, 1, step.output, 0, BYTES));
  REFUSED(OUT_OF_RANGE, pinlane_capture_fill(capture, step.gpu, BYTES, 1, "x", 1));
  REFUSED(LENGTH_MISMATCH, pinlane_capture_fill(capture, step.gpu, 0, 3, "xy", 2));
  REFUSED(LENGTH_MISMATCH, pinlane_capture_fill(capture, step.gpu, 0, 3, "xy", 0));
  REFUSED(INVALID_VALUE, pinlane_capture_fill(capture, step.gpu, 0, 2, NULL, 2));
  char long_pattern[65] = {0};
  REFUSED(UNSUPPORTED, pinlane_capture_fill(capture, step.gpu, 0, 65, long_pattern, 65));
  REFUSED(WRONG_DEVICE, pinlane_capture_upload(capture, step.input, 0, rig.other_gpu, 0, 1));
  OK(pinlane_capture_finish(capture, &step.graph));
  OK(pinlane_graph_launch(step.graph, rig.stream, NULL));
  OK(pinlane_graph_lend_buffer(step.graph, step.output));
  const void *data = NULL;
  OK(pinlane_buffer_read(step.output, &data));
  EXPECT(memcmp((const char *)data + 1, "\6\1\1\1\1\1\1\1\1\1\1\5", 12) == 0);
  /* The other device's buffer is in no graph. */
  OK(pinlane_device_buffer_fill(rig.other_stream, rig.other_gpu, 0, 1, "a", 1, NULL));
  REFUSED(WRONG_DEVICE, pinlane_graph_launch(step.graph, rig.other_stream, NULL));
  /* A kernel's addresses stay, and what was to replace them is no part of the graph. */
  REFUSED(UNSUPPORTED, pinlane_graph_rebind_device_buffer(step.graph, step.gpu, step.gpu2));
  OK(pinlane_device_buffer_fill(rig.stream, step.gpu2, 0, 1, "a", 1, NULL));
  OK(pinlane_graph_launch(step.graph, rig.stream, NULL));
  free_step();
}

/* Two inputs, and two buffers on the device, take turns in one graph. */
static void buffers_take_turns(void) {
  pinlane_buffer *input2 = NULL, *small = NULL;
  pinlane_device_buffer *gpu3 = NULL;
  make_step();
  OK(pinlane_buffer_alloc(rig.pool, BYTES, &input2));
  OK(pinlane_buffer_alloc(rig.pool, BYTES - 1, &small));
  OK(pinlane_device_buffer_alloc(rig.device, BYTES, &gpu3));
  pinlane_buffer *inputs[2] = {step.input, input2};
  pinlane_device_buffer *gpus[2] = {step.gpu, gpu3};
  OK(pinlane_graph_lend_buffer(step.graph, step.input));
  put(step.input, 0);
  for (int round = 1; round < 6; round++) {
    put(inputs[round % 2], round); /* the program's own, while the other is launched */
    OK(pinlane_graph_rebind_buffer(step.graph, inputs[(round + 1) % 2], inputs[round % 2]));
    OK(pinlane_graph_rebind_device_buffer(step.graph, gpus[(round + 1) % 2], gpus[round % 2]));
    OK(pinlane_graph_launch(step.graph, rig.stream, NULL));
    OK(pinlane_graph_lend_buffer(step.graph, step.output));
    EXPECT(has(step.output, round));
    EXPECT(device_has(gpus[(round + 1) % 2], round - 1) || round == 1);
  }
  pinlane_graph *g = step.graph;
  REFUSED(INVALID_VALUE, pinlane_graph_rebind_buffer(g, step.input, rig.buffer));
  REFUSED(INVALID_VALUE, pinlane_graph_lend_buffer(g, step.input));
  REFUSED(INVALID_VALUE, pinlane_graph_rebind_buffer(g, input2, step.output));
  REFUSED(INVALID_VALUE, pinlane_graph_rebind_buffer(g, input2, input2));
  REFUSED(LENGTH_MISMATCH, pinlane_graph_rebind_buffer(g, input2, small));
  REFUSED(WRONG_DEVICE, pinlane_graph_rebind_device_buffer(g, gpu3, rig.other_gpu));
  REFUSED(INVALID_HANDLE, pinlane_graph_rebind_buffer(g, input2, NULL));
  REFUSED(INVALID_HANDLE, pinlane_graph_rebind_buffer(g, NULL, step.input));
  OK(pinlane_graph_lend_buffer(g, input2));
  REFUSED(LENGTH_MISMATCH, pinlane_graph_rebind_buffer(g, input2, small));
  put(input2, 7); /* still lent */
  put(small, 7);  /* never taken */
  OK(pinlane_graph_launch(g, rig.stream, NULL));
  OK(pinlane_graph_lend_buffer(g, step.output));
  EXPECT(has(step.output, 7));
  free_step();
  OK(pinlane_buffer_free(input2));
  OK(pinlane_buffer_free(small));
  OK(pinlane_device_buffer_free(gpu3));
}

static size_t live_bytes(void) {
  pinlane_pool_stats stats = PINLANE_POOL_STATS_INIT;
  OK(pinlane_pool_get_stats(rig.pool, &stats));
  return stats.live_bytes;
}

/* Everything is freed, in the order of the digits of `order`, while a launch is under way. */
static void destroyed_in(const char *order) {
  const size_t before = live_bytes();
  make_step();
  OK(pinlane_emulator_stall(rig.stream));
  OK(pinlane_graph_launch(step.graph, rig.stream, NULL));
  size_t kept = live_bytes();
  for (const char *what = order; *what != '\0'; what++) {
    switch (*what) {
    case 'g':
      EXPECT(live_bytes() == kept); /* the graph has the memory of handles that were freed */
      OK(pinlane_graph_free(step.graph));
      step.graph = NULL;
      kept = 0;
      break;
    case 'i':
      OK(pinlane_buffer_free(step.input));
      break;
    case 'o':
      OK(pinlane_buffer_free(step.output));
      break;
    case 'd':
      OK(pinlane_device_buffer_free(step.gpu));
      OK(pinlane_device_buffer_free(step.gpu2));
      break;
    default:
      abort();
    }
  }
  EXPECT(live_bytes() == before);
  OK(pinlane_emulator_release(rig.stream));
  OK(pinlane_stream_synchronize(rig.stream));
}

/* A graph can be launched when the handles of its buffers are gone. */
static void c_rule_04_a_graph_outlives_the_handles_of_its_buffers(void) {
  make_step();
  OK(pinlane_graph_lend_buffer(step.graph, step.input));
  put(step.input, 5);
  OK(pinlane_graph_launch(step.graph, rig.stream, NULL));
  OK(pinlane_buffer_free(step.input));
  OK(pinlane_device_buffer_free(step.gpu));
  REFUSED(INVALID_HANDLE, pinlane_graph_lend_buffer(step.graph, step.input));
  REFUSED(INVALID_HANDLE, pinlane_buffer_free(step.input));
  for (int round = 0; round < 3; round++) { /* what is reused is not its memory */
    pinlane_buffer *buffer = NULL;
    OK(pinlane_buffer_alloc(rig.pool, BYTES, &buffer));
    put(buffer, 6);
    OK(pinlane_graph_launch(step.graph, rig.stream, NULL));
    OK(pinlane_graph_lend_buffer(step.graph, step.output));
    EXPECT(has(step.output, 5));
    OK(pinlane_buffer_free(buffer));
  }
  OK(pinlane_graph_free(step.graph));
  OK(pinlane_buffer_free(step.output));
  OK(pinlane_device_buffer_free(step.gpu2));
}

static void what_was_freed_while_it_was_lent(void) {
  make_step();
  OK(pinlane_graph_launch(step.graph, rig.stream, NULL));
  OK(pinlane_graph_lend_buffer(step.graph, step.output));
  OK(pinlane_graph_lend_device_buffer(step.graph, step.gpu));
  OK(pinlane_device_buffer_free(step.gpu));
  for (int i = 0; i < 2; i++) {
    REFUSED(INVALID_HANDLE, pinlane_graph_launch(step.graph, rig.stream, NULL));
    EXPECT(strstr(pinlane_last_error(), "freed while it was lent") != NULL);
    put(step.output, 1); /* still lent */
  }
  OK(pinlane_device_buffer_alloc(rig.device, BYTES, &step.gpu));
  free_step();

  /* In use by another call, so nothing is launched. */
  make_step();
  OK(pinlane_graph_lend_device_buffer(step.graph, step.gpu));
  OK(pinlane_graph_lend_buffer(step.graph, step.input));
  const pinlane_use use = {.device_buffer = step.gpu, .access = PINLANE_ACCESS_READ};
  pinlane_foreign *reader = NULL;
  OK(pinlane_foreign_begin(rig.stream, &use, 1, &reader));
  REFUSED(BUSY, pinlane_graph_launch(step.graph, rig.stream, NULL));
  put(step.input, 4); /* still lent */
  OK(pinlane_foreign_end(reader, NULL));
  OK(pinlane_graph_launch(step.graph, rig.stream, NULL));
  OK(pinlane_graph_lend_buffer(step.graph, step.output));
  EXPECT(has(step.output, 4));
  free_step();
}

/* The program's own memory cannot be given back while a graph has it. */
static void memory_of_the_program(void) {
  void *const memory = aligned_alloc(4096, BYTES);
  pinlane_buffer *own = NULL;
  pinlane_capture *capture = NULL;
  pinlane_graph *graph = NULL;
  if (memory == NULL) {
    abort();
  }
  OK(pinlane_buffer_register(rig.device, memory, BYTES, &own));
  put(own, 8);
  OK(pinlane_capture_begin(rig.device, &capture));
  OK(pinlane_capture_upload(capture, own, 0, rig.gpu, 0, BYTES));
  OK(pinlane_capture_finish(capture, &graph));
  OK(pinlane_graph_launch(graph, rig.stream, NULL));
  REFUSED(BUSY, pinlane_buffer_free(own));
  OK(pinlane_graph_lend_buffer(graph, own));
  REFUSED(BUSY, pinlane_buffer_free(own));
  OK(pinlane_graph_launch(graph, rig.stream, NULL));
  OK(pinlane_graph_lend_buffer(graph, own));
  OK(pinlane_graph_free(graph));
  OK(pinlane_buffer_free(own));
  EXPECT(device_has(rig.gpu, 8));

  /* What is only read is a source, and nothing else. */
  OK(pinlane_buffer_register_read_only(rig.device, memory, BYTES, &own));
  OK(pinlane_capture_begin(rig.device, &capture));
  REFUSED(INVALID_VALUE, pinlane_capture_download(capture, rig.gpu, 0, own, 0, BYTES));
  OK(pinlane_capture_upload(capture, own, 0, rig.gpu, 0, BYTES));
  for (int i = 0; i < 2; i++) {
    REFUSED(INVALID_VALUE, pinlane_capture_download(capture, rig.gpu, 0, own, 0, BYTES));
  }
  const void *read = NULL;
  OK(pinlane_buffer_read(own, &read)); /* as before the refusals */
  OK(pinlane_capture_finish(capture, &graph));
  OK(pinlane_graph_launch(graph, rig.stream, NULL));
  OK(pinlane_graph_free(graph));
  OK(pinlane_buffer_free(own));
  free(memory);
}

static void a_capture_fails_as_a_whole(void) {
  static const char *const calls[] = {"CopyH2D", "CopyD2H", "CopyD2D", "CaptureNode", "CaptureEnd"};
  pinlane_emulator *machine = NULL;
  OK(pinlane_device_emulator(rig.device, &machine));
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    pinlane_capture *capture = NULL;
    pinlane_graph *graph = NULL;
    make_buffers();
    OK(pinlane_capture_begin(rig.device, &capture));
    OK(pinlane_emulator_inject(machine, calls[i], 1, 999, PINLANE_FAULT_ONCE));
    pinlane_status worst =
        pinlane_capture_upload(capture, step.input, 0, step.gpu, 0, BYTES);
    worst |= pinlane_capture_copy(capture, step.gpu, 0, step.gpu2, 0, BYTES);
    worst |= pinlane_capture_download(capture, step.gpu2, 0, step.output, 0, BYTES);
    EXPECT(worst == (i == 4 ? PINLANE_STATUS_OK : PINLANE_STATUS_CUDA));
    REFUSED(CUDA, pinlane_capture_finish(capture, &graph));
    EXPECT(pinlane_last_cuda_error() == 999 && graph == NULL);
    REFUSED(INVALID_HANDLE, pinlane_capture_free(capture));
    put(step.input, 1); /* the program's again */
    put(step.output, 1);
    free_step();
  }
  OK(pinlane_emulator_free(machine));
}

static void a_capture_is_given_up(void) {
  pinlane_capture *capture = NULL;
  pinlane_graph *graph = NULL;
  make_buffers();
  OK(pinlane_capture_begin(rig.device, &capture));
  OK(pinlane_capture_upload(capture, step.input, 0, step.gpu, 0, BYTES));
  REFUSED(INVALID_VALUE, pinlane_capture_finish(capture, NULL)); /* goes on */
  OK(pinlane_capture_free(capture));
  REFUSED(INVALID_HANDLE, pinlane_capture_finish(capture, &graph));
  REFUSED(INVALID_HANDLE, pinlane_capture_free(capture));
  put(step.input, 1);
  OK(pinlane_capture_begin(rig.device, &capture)); /* an empty one */
  OK(pinlane_capture_finish(capture, &graph));
  OK(pinlane_graph_launch(graph, rig.stream, NULL));
  REFUSED(INVALID_VALUE, pinlane_graph_lend_buffer(graph, step.input));
  OK(pinlane_graph_free(graph));
  REFUSED(INVALID_HANDLE, pinlane_graph_free(graph));
  REFUSED(INVALID_HANDLE, pinlane_graph_launch(graph, rig.stream, NULL));
  OK(pinlane_capture_free(NULL));
  OK(pinlane_graph_free(NULL));
  free_step();
}

/* `theirs` plays the other code, whose graph contains what `ours` captures. */
static void a_capture_of_other_code_is_joined(void) {
  pinlane_capture *theirs = NULL, *ours = NULL;
  pinlane_stream *captured = NULL;
  pinlane_graph *graph = NULL;
  void *cuda_stream = NULL;
  pinlane_graph *others = NULL;
  pinlane_foreign *launch = NULL;
  make_buffers();
  put(step.input, 4);
  REFUSED(INVALID_VALUE, pinlane_capture_join(rig.stream, &ours));
  OK(pinlane_capture_begin(rig.device, &theirs));
  const pinlane_use uses[] = {{.device_buffer = rig.gpu, .access = PINLANE_ACCESS_READ},
                              {.device_buffer = rig.gpu2, .access = PINLANE_ACCESS_WRITE},
                              {.buffer = rig.buffer, .access = PINLANE_ACCESS_READ}};
  pinlane_use bad = uses[0];
  bad.flags = 1;
  REFUSED(INVALID_VALUE, pinlane_capture_foreign(theirs, &bad, 1, &cuda_stream));
  REFUSED(INVALID_VALUE, pinlane_capture_foreign(theirs, NULL, 1, &cuda_stream));
  REFUSED(INVALID_VALUE, pinlane_capture_foreign(theirs, uses, 3, NULL));
  EXPECT(cuda_stream == NULL);
  OK(pinlane_capture_foreign(theirs, uses, 3, &cuda_stream));
  OK(pinlane_stream_borrow(rig.device, cuda_stream, &captured));
  OK(pinlane_capture_join(captured, &ours));
  REFUSED(UNSUPPORTED, pinlane_capture_branch(ours, 1));
  OK(pinlane_capture_upload(ours, step.input, 0, step.gpu, 0, BYTES));
  OK(pinlane_capture_download(ours, step.gpu, 0, step.output, 0, BYTES));
  OK(pinlane_capture_finish(ours, &graph));
  OK(pinlane_capture_finish(theirs, &others));
  OK(pinlane_stream_free(captured));

  REFUSED(BUSY, pinlane_device_buffer_fill(rig.stream, rig.gpu2, 0, 1, "a", 1, NULL));
  REFUSED(UNSUPPORTED, pinlane_graph_launch(graph, rig.stream, NULL));
  EXPECT(strstr(pinlane_last_error(), "pinlane_graph_foreign_begin") != NULL);
  REFUSED(UNSUPPORTED, pinlane_graph_rebind_device_buffer(graph, step.gpu, step.gpu2));
  REFUSED(INVALID_VALUE, pinlane_graph_foreign_begin(graph, rig.stream, NULL));
  REFUSED(WRONG_DEVICE, pinlane_graph_foreign_begin(graph, rig.other_stream, &launch));
  for (int round = 1; round < 4; round++) {
    pinlane_ticket *ticket = NULL;
    OK(pinlane_graph_lend_buffer(graph, step.input));
    put(step.input, round);
    OK(pinlane_graph_foreign_begin(graph, rig.stream, &launch));
    REFUSED(BUSY, pinlane_graph_lend_buffer(graph, step.input));
    REFUSED(BUSY, pinlane_graph_foreign_begin(graph, rig.stream, &launch));
    OK(pinlane_graph_launch(others, rig.stream, NULL));
    OK(pinlane_foreign_end(launch, &ticket));
    OK(pinlane_graph_lend_buffer(graph, step.output));
    EXPECT(has(step.output, round));
    OK(pinlane_ticket_wait(ticket));
    OK(pinlane_ticket_free(ticket));
  }
  /* The graph is freed before the launch ends. */
  OK(pinlane_graph_lend_buffer(graph, step.input));
  put(step.input, 9);
  OK(pinlane_emulator_stall(rig.stream));
  OK(pinlane_graph_foreign_begin(graph, rig.stream, &launch));
  OK(pinlane_graph_launch(others, rig.stream, NULL));
  OK(pinlane_graph_free(graph));
  void *data = NULL;
  REFUSED(BUSY, pinlane_buffer_write(step.input, &data));
  OK(pinlane_foreign_end(launch, NULL));
  REFUSED(NOT_READY, pinlane_buffer_try_write(step.input, &data));
  OK(pinlane_emulator_release(rig.stream));
  EXPECT(has(step.output, 9));
  OK(pinlane_graph_free(others));
  free_step();
}

static void refusals(void) {
  pinlane_capture *capture = NULL;
  pinlane_graph *graph = NULL;
  pinlane_foreign *launch = NULL;
  void *stream = NULL;
  size_t bytes = 0;
  REFUSED(INVALID_VALUE, pinlane_capture_begin(rig.device, NULL));
  REFUSED(INVALID_HANDLE, pinlane_capture_begin(NULL, &capture));
  REFUSED(INVALID_HANDLE, pinlane_capture_join(NULL, &capture));
  REFUSED(INVALID_VALUE, pinlane_capture_join(rig.stream, NULL));
  REFUSED(INVALID_HANDLE, pinlane_capture_finish(NULL, &graph));
  EXPECT(capture == NULL && graph == NULL);
  for (int i = 0; i < 2; i++) {
    pinlane_capture *const wrong = i == 0 ? NULL : (pinlane_capture *)rig.gpu;
    REFUSED(INVALID_HANDLE, pinlane_capture_upload(wrong, rig.buffer, 0, rig.gpu, 0, 1));
    REFUSED(INVALID_HANDLE, pinlane_capture_download(wrong, rig.gpu, 0, rig.buffer, 0, 1));
    REFUSED(INVALID_HANDLE, pinlane_capture_copy(wrong, rig.gpu, 0, rig.gpu2, 0, 1));
    REFUSED(INVALID_HANDLE, pinlane_capture_fill(wrong, rig.gpu, 0, 1, "x", 1));
    REFUSED(INVALID_HANDLE, pinlane_capture_foreign(wrong, NULL, 0, &stream));
    REFUSED(INVALID_HANDLE, pinlane_capture_branch(wrong, 1));
    graph = (pinlane_graph *)wrong;
    REFUSED(INVALID_HANDLE, pinlane_graph_launch(graph, rig.stream, NULL));
    REFUSED(INVALID_HANDLE, pinlane_graph_foreign_begin(graph, rig.stream, &launch));
    REFUSED(INVALID_HANDLE, pinlane_graph_lend_buffer(graph, rig.buffer));
    REFUSED(INVALID_HANDLE, pinlane_graph_lend_device_buffer(graph, rig.gpu));
    REFUSED(INVALID_HANDLE, pinlane_graph_rebind_buffer(graph, rig.buffer, rig.buffer));
    REFUSED(INVALID_HANDLE, pinlane_graph_rebind_device_buffer(graph, rig.gpu, rig.gpu2));
    REFUSED(INVALID_HANDLE, pinlane_graph_bytes(graph, &bytes));
  }
  REFUSED(INVALID_HANDLE, pinlane_graph_free((pinlane_graph *)rig.gpu));
  REFUSED(INVALID_HANDLE, pinlane_capture_free((pinlane_capture *)rig.gpu));

  OK(pinlane_capture_begin(rig.device, &capture));
  REFUSED(INVALID_HANDLE, pinlane_capture_upload(capture, NULL, 0, rig.gpu, 0, 1));
  REFUSED(INVALID_HANDLE, pinlane_capture_upload(capture, rig.buffer, 0, NULL, 0, 1));
  REFUSED(INVALID_HANDLE,
          pinlane_capture_upload(capture, (pinlane_buffer *)rig.gpu, 0, rig.gpu, 0, 1));
  REFUSED(INVALID_HANDLE, pinlane_capture_fill(capture, NULL, 0, 1, "x", 1));
  put(rig.buffer, 0); /* no refused call has kept a buffer */
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, 1, "a", 1, NULL));
  graph = NULL;
  OK(pinlane_capture_finish(capture, &graph));
  REFUSED(INVALID_VALUE, pinlane_graph_bytes(graph, NULL));
  REFUSED(INVALID_HANDLE, pinlane_graph_launch(graph, NULL, NULL));
  REFUSED(INVALID_VALUE,
          pinlane_graph_launch(graph, rig.stream, (void *)((char *)&rig.ticket + 1)));
  OK(pinlane_graph_free(graph));
}

int main(void) {
  set_up(BYTES, BYTES);
  each_launch_copies_what_is_there_then();
  what_is_lent_waits_for_the_launch();
  launches_follow_each_other_on_two_streams();
  what_a_graph_holds_is_refused_elsewhere();
  a_refused_writer_stays_a_reader();
  a_reader_becomes_a_writer();
  parts_of_buffers();
  buffers_take_turns();
  destroyed_in("giod");
  destroyed_in("iodg");
  destroyed_in("dgoi");
  destroyed_in("igdo");
  c_rule_04_a_graph_outlives_the_handles_of_its_buffers();
  what_was_freed_while_it_was_lent();
  memory_of_the_program();
  a_capture_fails_as_a_whole();
  a_capture_is_given_up();
  a_capture_of_other_code_is_joined();
  refusals();
  size_t count = 1;
  OK(pinlane_live_count(PINLANE_KIND_GRAPH, &count));
  EXPECT(count == 0);
  tear_down();
  return verdict("graphs");
}
