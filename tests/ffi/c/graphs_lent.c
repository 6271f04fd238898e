/* Buffers that are freed while a graph has lent them: their memory stays until no graph has its
 * address. C11, on a lazy emulated device, which reports memory that is unlocked before. */

#include "dlpack_rig.h"

/* A graph that uploads a buffer. */
static pinlane_graph *uploading(pinlane_buffer *input, pinlane_device_buffer *gpu) {
  pinlane_capture *capture = NULL;
  pinlane_graph *graph = NULL;
  OK(pinlane_capture_begin(rig.device, &capture));
  OK(pinlane_capture_upload(capture, input, 0, gpu, 0, BYTES));
  OK(pinlane_capture_finish(capture, &graph));
  return graph;
}

/* All memory of a pool that no buffer has goes back to the system. */
static void trim(pinlane_pool *pool) {
  OK(pinlane_stream_synchronize(rig.stream));
  OK(pinlane_pool_trim(pool, 0, NULL));
}

static void memory_of_a_pool_stays_until_the_last_graph_goes(int first_to_go) {
  pinlane_pool *pool = small_pool();
  pinlane_buffer *input = NULL, *other = NULL;
  OK(pinlane_buffer_alloc(pool, BYTES, &input));
  pinlane_graph *const graphs[2] = {uploading(input, rig.gpu), uploading(input, rig.gpu2)};
  OK(pinlane_graph_launch(graphs[0], rig.stream, NULL));
  OK(pinlane_graph_launch(graphs[1], rig.stream, NULL));
  OK(pinlane_graph_lend_buffer(graphs[0], input));
  OK(pinlane_graph_lend_buffer(graphs[1], input));
  managed *tensor = NULL;
  REFUSED(BUSY, pinlane_buffer_into_dlpack(input, NULL, &tensor));
  EXPECT(strstr(pinlane_last_error(), "free the graph first") != NULL && tensor == NULL);
  OK(pinlane_buffer_free(input));
  REFUSED(INVALID_HANDLE, pinlane_buffer_free(input));
  REFUSED(INVALID_HANDLE, pinlane_graph_launch(graphs[1], rig.stream, NULL));
  trim(pool);
  EXPECT(live(pool) == BYTES);
  REFUSED(BUDGET_EXHAUSTED, pinlane_buffer_alloc(pool, BYTES, &other));
  OK(pinlane_graph_free(graphs[first_to_go]));
  trim(pool);
  EXPECT(live(pool) == BYTES);
  OK(pinlane_graph_free(graphs[1 - first_to_go]));
  EXPECT(live(pool) == 0);
  trim(pool);
  OK(pinlane_pool_free(pool));
}

/* A buffer that the graph has again, or no longer names, goes as any other. */
static void what_is_lent_no_longer_goes_at_once(void) {
  pinlane_pool *pool = small_pool();
  pinlane_buffer *input = NULL;
  OK(pinlane_buffer_alloc(pool, BYTES, &input));
  pinlane_graph *graph = uploading(input, rig.gpu);
  OK(pinlane_graph_lend_buffer(graph, input));
  OK(pinlane_graph_rebind_buffer(graph, input, rig.buffer));
  managed *tensor = NULL;
  OK(pinlane_buffer_into_dlpack(input, NULL, &tensor));
  tensor->deleter(tensor);
  EXPECT(live(pool) == 0);
  OK(pinlane_graph_free(graph));

  OK(pinlane_buffer_alloc(pool, BYTES, &input));
  graph = uploading(input, rig.gpu);
  OK(pinlane_graph_lend_buffer(graph, input));
  OK(pinlane_graph_launch(graph, rig.stream, NULL));
  OK(pinlane_graph_free(graph));
  OK(pinlane_buffer_into_dlpack(input, NULL, &tensor));
  tensor->deleter(tensor);
  EXPECT(live(pool) == 0);
  trim(pool);
  OK(pinlane_pool_free(pool));
}

/* A call of a capture that is refused names nothing. */
static void a_refused_capture_keeps_nothing(void) {
  pinlane_pool *pool = small_pool();
  pinlane_buffer *input = NULL;
  pinlane_capture *capture = NULL;
  OK(pinlane_buffer_alloc(pool, BYTES, &input));
  OK(pinlane_capture_begin(rig.device, &capture));
  REFUSED(OUT_OF_RANGE, pinlane_capture_upload(capture, input, 1, rig.gpu, 0, BYTES));
  OK(pinlane_buffer_free(input));
  EXPECT(live(pool) == 0);
  OK(pinlane_capture_free(capture));
  OK(pinlane_pool_free(pool));
}

/* The program's own memory cannot stay: it is not given back. */
static void memory_of_the_program_is_not_given_back(void) {
  char *const memory = aligned_alloc(4096, BYTES);
  if (memory == NULL) {
    abort();
  }
  pinlane_buffer *own = NULL;
  OK(pinlane_buffer_register(rig.device, memory, BYTES, &own));
  pinlane_graph *const graph = uploading(own, rig.gpu);
  OK(pinlane_graph_launch(graph, rig.stream, NULL));
  OK(pinlane_graph_lend_buffer(graph, own));
  REFUSED(BUSY, pinlane_buffer_free(own));
  EXPECT(strstr(pinlane_last_error(), "free the graph first") != NULL);
  void *data = NULL;
  OK(pinlane_buffer_write(own, &data)); /* as before */
  EXPECT(data == memory);
  OK(pinlane_graph_free(graph));
  OK(pinlane_buffer_free(own));
  free(memory);
}

/* Nor is that of another library: its tensor is deleted after the graph. */
static void a_tensor_is_deleted_after_the_graph(void) {
  struct producer *const producer = produce();
  producer->shape[0] = 1;
  producer->shape[1] = BYTES / 4;
  producer->managed.tensor.byte_offset = 0;
  pinlane_buffer *own = NULL;
  OK(pinlane_buffer_from_dlpack(rig.device, &producer->managed, &own));
  pinlane_graph *const graph = uploading(own, rig.gpu);
  OK(pinlane_graph_launch(graph, rig.stream, NULL));
  OK(pinlane_graph_lend_buffer(graph, own));
  OK(pinlane_buffer_free(own));
  EXPECT(producer->deleted == 0);
  OK(pinlane_graph_free(graph));
  EXPECT(producer->deleted == 1);
  free(producer);
}

int main(void) {
  set_up(BYTES, BYTES);
  memory_of_a_pool_stays_until_the_last_graph_goes(0);
  memory_of_a_pool_stays_until_the_last_graph_goes(1);
  what_is_lent_no_longer_goes_at_once();
  a_refused_capture_keeps_nothing();
  memory_of_the_program_is_not_given_back();
  a_tensor_is_deleted_after_the_graph();
  tear_down();
  return verdict("buffers that a graph has lent");
}
