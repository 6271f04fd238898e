/* Recordings of the work of a device and of the host's threads, as files. C11, on a lazy emulated
 * device. */

#include "rig.h"

#include <stdlib.h>
#include <unistd.h>

static char file_path[64];

/* The text of the file; NULL if there is none. The caller frees it. */
static char *text_of_file(void) {
  FILE *const file = fopen(file_path, "rb");
  char *text = file != NULL ? calloc(1, 1 << 20) : NULL;
  if (text != NULL && fread(text, 1, (1 << 20) - 1, file) == 0) {
    text[0] = '\0';
  }
  if (file != NULL) {
    fclose(file);
  }
  return text;
}

static int file_has(const char *part) {
  char *const text = text_of_file();
  const int has = text != NULL && strstr(text, part) != NULL;
  free(text);
  return has;
}

static void some_work(void) {
  const void *data = NULL;
  OK(pinlane_device_buffer_upload(rig.stream, rig.buffer, 0, rig.gpu, 0, BYTES, NULL));
  OK(pinlane_device_buffer_download(rig.stream, rig.gpu, 0, rig.buffer, 0, BYTES, NULL));
  OK(pinlane_buffer_read(rig.buffer, &data));
}

static void work_is_noted_and_written(void) {
  pinlane_recording *recording = NULL;
  size_t spans = 0, missing = 7;
  OK(pinlane_recording_create(&recording));
  some_work(); /* of nothing that is recorded */
  OK(pinlane_device_record(rig.device, recording));
  OK(pinlane_device_record(rig.device, recording)); /* it is the same one */
  some_work();
  OK(pinlane_recording_stop(recording));
  some_work(); /* too late */
  OK(pinlane_recording_counts(recording, &spans, &missing));
  EXPECT(spans >= 4 && missing == 0); /* enqueued by the host, and done by the device */
  size_t again = 0;
  OK(pinlane_recording_stop(recording));
  OK(pinlane_recording_counts(recording, &again, NULL));
  OK(pinlane_recording_counts(recording, NULL, NULL));
  EXPECT(again == spans);

  OK(pinlane_recording_write(recording, PINLANE_TRACE_JSON, file_path));
  EXPECT(file_has("\"traceEvents\"") && file_has("\"cat\":\"device\""));
  EXPECT(file_has("Stream::upload") && file_has("\"bytes\":4096"));
  OK(pinlane_recording_write(recording, PINLANE_TRACE_SVG, file_path));
  EXPECT(file_has("<svg") && !file_has("traceEvents"));
  OK(pinlane_recording_write(recording, PINLANE_TRACE_SVG, "/dev/null"));

  REFUSED(INVALID_VALUE, pinlane_device_record(rig.device, recording)); /* it was stopped */
  OK(pinlane_recording_free(recording));
  REFUSED(INVALID_HANDLE, pinlane_recording_stop(recording));
  REFUSED(INVALID_HANDLE, pinlane_recording_free(recording));
  OK(pinlane_recording_free(NULL));
  remove(file_path);
}

/* A graph that was captured before the recording, launched by pinlane and by other code. */
static void launches_say_what_they_consist_of(void) {
  pinlane_capture *capture = NULL, *joined = NULL;
  pinlane_graph *graph = NULL, *part = NULL;
  pinlane_recording *recording = NULL;
  pinlane_stream *captured = NULL;
  pinlane_foreign *launch = NULL;
  void *cuda_stream = NULL;
  OK(pinlane_capture_begin(rig.device, &capture));
  OK(pinlane_capture_upload(capture, rig.buffer, 0, rig.gpu, 0, BYTES));
  OK(pinlane_capture_branch(capture, 5));
  OK(pinlane_capture_fill(capture, rig.gpu2, 8, 16, "a", 1));
  OK(pinlane_capture_branch(capture, 0));
  OK(pinlane_capture_foreign(capture, NULL, 0, &cuda_stream));
  OK(pinlane_stream_borrow(rig.device, cuda_stream, &captured));
  OK(pinlane_capture_join(captured, &joined)); /* plays other code's graph */
  OK(pinlane_capture_finish(joined, &part));
  OK(pinlane_capture_finish(capture, &graph));
  OK(pinlane_stream_free(captured));

  OK(pinlane_recording_create(&recording));
  OK(pinlane_device_record(rig.device, recording));
  OK(pinlane_graph_foreign_begin(part, rig.stream, &launch));
  OK(pinlane_graph_launch(graph, rig.stream, NULL));
  OK(pinlane_foreign_end(launch, NULL));
  OK(pinlane_recording_stop(recording));
  OK(pinlane_recording_write(recording, PINLANE_TRACE_JSON, file_path));
  EXPECT(file_has("\"upload\":{\"count\":1,\"bytes\":4096}"));
  EXPECT(file_has("\"branch 0: upload, 4096 bytes, from buffer 0 (0x"));
  EXPECT(file_has("\"branch 5: fill, 16 bytes, to buffer 2+8 (0x"));
  EXPECT(file_has("\"branch 0: foreign, 0 bytes\""));
  EXPECT(file_has("\"operations\":[]")); /* the other one */
  remove(file_path);
  OK(pinlane_recording_free(recording));
  OK(pinlane_graph_free(graph));
  OK(pinlane_graph_free(part));
}

static void a_device_has_one_recording(void) {
  pinlane_recording *first = NULL, *second = NULL;
  OK(pinlane_recording_create(&first));
  OK(pinlane_recording_create(&second));
  OK(pinlane_device_record(rig.device, first));
  OK(pinlane_device_record(rig.other_device, first)); /* two devices share it */
  REFUSED(INVALID_VALUE, pinlane_device_record(rig.device, second));
  /* A freed recording drops its events, and the device can be recorded again. */
  some_work();
  OK(pinlane_recording_free(first));
  OK(pinlane_device_record(rig.device, second));
  some_work();
  OK(pinlane_recording_stop(second));
  size_t spans = 0;
  OK(pinlane_recording_counts(second, &spans, NULL));
  EXPECT(spans >= 4);
  OK(pinlane_recording_free(second));
}

/* Writes to /dev/full fail, and these folders do not exist. */
static void what_cannot_be_written(void) {
  pinlane_recording *recording = NULL;
  size_t spans = 77;
  OK(pinlane_recording_create(&recording));
  REFUSED(INVALID_VALUE, pinlane_recording_counts(recording, &spans, NULL));
  REFUSED(INVALID_VALUE, pinlane_recording_write(recording, PINLANE_TRACE_JSON, file_path));
  EXPECT(spans == 77 && access(file_path, F_OK) != 0);
  OK(pinlane_recording_stop(recording)); /* of nothing */
  REFUSED(INVALID_VALUE, pinlane_recording_write(recording, PINLANE_TRACE_SVG + 1, file_path));
  REFUSED(INVALID_VALUE, pinlane_recording_write(recording, -1, file_path));
  REFUSED(INVALID_VALUE, pinlane_recording_write(recording, PINLANE_TRACE_SVG, NULL));
  REFUSED(IO, pinlane_recording_write(recording, PINLANE_TRACE_SVG, "/dev/full"));
  EXPECT(access("/dev/full", F_OK) == 0);
  REFUSED(IO, pinlane_recording_write(recording, PINLANE_TRACE_SVG, "/pinlane/no/such/file"));
  REFUSED(IO, pinlane_recording_write(recording, PINLANE_TRACE_SVG, "/"));
  REFUSED(IO, pinlane_recording_write(recording, PINLANE_TRACE_SVG, ""));
  EXPECT(access(file_path, F_OK) != 0);
  OK(pinlane_recording_write(recording, PINLANE_TRACE_JSON, file_path));
  EXPECT(file_has("\"missing\":0"));
  remove(file_path);

  REFUSED(INVALID_VALUE, pinlane_recording_create(NULL));
  REFUSED(INVALID_VALUE, pinlane_recording_counts(recording, (void *)((char *)&spans + 1), NULL));
  REFUSED(INVALID_HANDLE, pinlane_device_record(NULL, recording));
  REFUSED(INVALID_HANDLE, pinlane_device_record(rig.device, NULL));
  REFUSED(INVALID_HANDLE, pinlane_recording_stop((void *)rig.gpu));
  REFUSED(INVALID_HANDLE, pinlane_recording_counts(NULL, &spans, NULL));
  OK(pinlane_recording_free(recording));
}

static pinlane_recording *stopped_inside;
static pinlane_status status_inside;
static void stop_inside(void *user) {
  (void)user;
  status_inside = pinlane_recording_stop(stopped_inside);
}

/* The recording continues, and can be stopped later. */
static void not_inside_a_host_function(void) {
  size_t spans = 0;
  OK(pinlane_recording_create(&stopped_inside));
  OK(pinlane_device_record(rig.device, stopped_inside));
  OK(pinlane_stream_launch_host(rig.stream, stop_inside, NULL, NULL));
  OK(pinlane_stream_synchronize(rig.stream));
  EXPECT(status_inside == PINLANE_STATUS_UNSUPPORTED);
  REFUSED(INVALID_VALUE, pinlane_recording_counts(stopped_inside, &spans, NULL));
  some_work();
  OK(pinlane_recording_stop(stopped_inside));
  OK(pinlane_recording_counts(stopped_inside, &spans, NULL));
  EXPECT(spans >= 4);
  OK(pinlane_recording_free(stopped_inside));
}

int main(void) {
  snprintf(file_path, sizeof file_path, "/tmp/pinlane-recording-%ld", (long)getpid());
  set_up(BYTES, BYTES);
  work_is_noted_and_written();
  launches_say_what_they_consist_of();
  a_device_has_one_recording();
  what_cannot_be_written();
  not_inside_a_host_function();
  tear_down();
  return verdict("recordings");
}
