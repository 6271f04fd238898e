/* Functions of the program that pinlane calls: in stream order, when an operation is complete, and
 * when memory is available. C11, on a lazy emulated device. */

#define _POSIX_C_SOURCE 200809L /* semaphores, beside strict C */

#include "rig.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/* Host functions. */
struct calls {
  sem_t open;
  int count;
  pinlane_buffer *freed;
  pinlane_status inside[3];
};

static void count_call(void *user) { ((struct calls *)user)->count++; }

static void wait_at_gate(void *user) { sem_wait(&((struct calls *)user)->open); }

static void call_pinlane(void *user) {
  struct calls *calls = user;
  calls->inside[0] = pinlane_stream_record(rig.stream, NULL);
  calls->inside[1] = pinlane_stream_launch_host(rig.stream, count_call, user, NULL);
  calls->inside[2] = pinlane_buffer_free(calls->freed);
}

static void host_functions_run_once_and_in_order(void) {
  enum { TIMES = 50 };
  struct calls calls = {.count = 0};
  pinlane_ticket *ticket = NULL;
  for (int i = 0; i < TIMES; i++) {
    OK(pinlane_stream_launch_host(rig.stream, count_call, &calls, i + 1 < TIMES ? NULL : &ticket));
  }
  OK(pinlane_ticket_wait(ticket));
  EXPECT(calls.count == TIMES);
  OK(pinlane_ticket_free(ticket));

  REFUSED(INVALID_VALUE, pinlane_stream_launch_host(rig.stream, NULL, &calls, NULL));
  REFUSED(INVALID_HANDLE, pinlane_stream_launch_host(NULL, count_call, &calls, NULL));
  REFUSED(INVALID_VALUE, pinlane_stream_launch_host(rig.stream, count_call, &calls,
                                                    (pinlane_ticket **)((char *)&ticket + 1)));
  OK(pinlane_stream_synchronize(rig.stream));
  EXPECT(calls.count == TIMES); /* what was refused is not called */

  OK(pinlane_buffer_alloc(rig.pool, BYTES, &calls.freed));
  OK(pinlane_device_buffer_download(rig.stream, rig.gpu, 0, calls.freed, 0, BYTES, NULL));
  OK(pinlane_stream_launch_host(rig.stream, call_pinlane, &calls, NULL));
  OK(pinlane_stream_synchronize(rig.stream));
  EXPECT(calls.inside[0] == PINLANE_STATUS_UNSUPPORTED);
  EXPECT(calls.inside[1] == PINLANE_STATUS_UNSUPPORTED && calls.count == TIMES);
  EXPECT(calls.inside[2] == PINLANE_STATUS_OK);
}

static void waits_end_in_time(void) {
  struct calls calls = {.count = 0};
  sem_init(&calls.open, 0, 0);
  pinlane_ticket *ticket = NULL;
  int32_t done = 77;
  OK(pinlane_stream_launch_host(rig.stream, wait_at_gate, &calls, NULL));
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, BYTES, "abcd", 4, &ticket));
  REFUSED(TIMED_OUT, pinlane_ticket_wait_timeout(ticket, 0));
  struct timespec before, after;
  clock_gettime(CLOCK_MONOTONIC, &before);
  REFUSED(TIMED_OUT, pinlane_ticket_wait_timeout(ticket, 20000));
  clock_gettime(CLOCK_MONOTONIC, &after);
  EXPECT((after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec >= 20000000);
  EXPECT(strstr(pinlane_last_error(), "20000 us") != NULL);
  sem_post(&calls.open);
  OK(pinlane_ticket_wait_timeout(ticket, UINT64_MAX));
  OK(pinlane_ticket_is_done(ticket, &done));
  EXPECT(done == 1);
  OK(pinlane_ticket_wait_timeout(ticket, 0));
  OK(pinlane_ticket_free(ticket));
  REFUSED(INVALID_HANDLE, pinlane_ticket_wait_timeout(ticket, 0));
  sem_destroy(&calls.open);
}

/* The arguments that a callback got. */
struct told {
  sem_t sem;
  atomic_int times;
  pinlane_status status;
  pthread_t thread;
  int has_message, has_buffer;
};

static void set_up_told(struct told *told) {
  memset(told, 0, sizeof *told);
  told->status = -1;
  sem_init(&told->sem, 0, 0);
}

static void completed(void *user, pinlane_status status) {
  struct told *told = user;
  told->times++;
  told->status = status;
  told->thread = pthread_self();
  told->has_message = strncmp(pinlane_last_error(), "pinlane_", 8) == 0;
  sem_post(&told->sem);
}

static void tickets_call_back(void) {
  struct told told;
  pinlane_ticket *ticket = NULL;
  set_up_told(&told);
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, BYTES, "abcd", 4, &ticket));
  OK(pinlane_ticket_on_complete(ticket, completed, &told, NULL));
  sem_wait(&told.sem);
  EXPECT(told.status == PINLANE_STATUS_OK && !pthread_equal(told.thread, pthread_self()));
  OK(pinlane_ticket_on_complete(ticket, completed, &told, NULL)); /* complete already */
  sem_wait(&told.sem);
  EXPECT(told.status == PINLANE_STATUS_OK && !pthread_equal(told.thread, pthread_self()));
  EXPECT(told.times == 2);
  REFUSED(INVALID_VALUE, pinlane_ticket_on_complete(ticket, NULL, &told, NULL));
  OK(pinlane_ticket_free(ticket));
  REFUSED(INVALID_HANDLE, pinlane_ticket_on_complete(ticket, completed, &told, NULL));
  EXPECT(told.times == 2);

  /* Withdrawn while the operation is pending and after the ticket was freed. */
  struct calls calls = {.count = 0};
  sem_init(&calls.open, 0, 0);
  pinlane_request *request = NULL;
  OK(pinlane_stream_launch_host(rig.stream, wait_at_gate, &calls, &ticket));
  OK(pinlane_ticket_on_complete(ticket, completed, &told, &request));
  OK(pinlane_ticket_free(ticket));
  OK(pinlane_request_cancel(request));
  OK(pinlane_request_free(request));
  sem_wait(&told.sem);
  EXPECT(told.status == PINLANE_STATUS_CANCELLED && told.has_message && told.times == 3);
  sem_post(&calls.open);
  OK(pinlane_stream_synchronize(rig.stream));
  EXPECT(told.times == 3);
  sem_destroy(&told.sem);
  sem_destroy(&calls.open);
}

static void allocated(void *user, pinlane_status status, pinlane_buffer *buffer) {
  struct told *told = user;
  size_t size = 0;
  told->has_buffer = buffer != NULL && pinlane_buffer_size(buffer, &size) == PINLANE_STATUS_OK;
  pinlane_buffer_free(buffer);
  completed(user, status);
}

static void requests_for_memory_end(void) {
  pinlane_pool_options budget = PINLANE_POOL_OPTIONS_INIT;
  budget.max_bytes = 4 * BYTES;
  pinlane_pool *pool = NULL;
  pinlane_buffer *all = NULL;
  pinlane_request *request = NULL;
  struct told told;
  set_up_told(&told);
  OK(pinlane_pool_create(rig.device, &budget, &pool));
  OK(pinlane_buffer_alloc_async(pool, BYTES, allocated, &told, NULL));
  sem_wait(&told.sem);
  EXPECT(told.status == PINLANE_STATUS_OK && told.has_buffer);
  EXPECT(!pthread_equal(told.thread, pthread_self()));
  OK(pinlane_buffer_alloc_async(pool, 5 * BYTES, allocated, &told, NULL));
  sem_wait(&told.sem);
  EXPECT(told.status == PINLANE_STATUS_BUDGET_EXHAUSTED && !told.has_buffer && told.has_message);
  OK(pinlane_buffer_alloc_async(pool, SIZE_MAX, allocated, &told, NULL));
  sem_wait(&told.sem);
  EXPECT(told.status == PINLANE_STATUS_INVALID_VALUE && !told.has_buffer);
  OK(pinlane_buffer_alloc_async(pool, 0, allocated, &told, NULL));
  sem_wait(&told.sem);
  EXPECT(told.status == PINLANE_STATUS_OK && told.has_buffer && told.times == 4);

  REFUSED(INVALID_VALUE, pinlane_buffer_alloc_async(pool, 1, NULL, &told, NULL));
  REFUSED(INVALID_HANDLE, pinlane_buffer_alloc_async(NULL, 1, allocated, &told, NULL));
  REFUSED(INVALID_VALUE, pinlane_buffer_alloc_async(pool, 1, allocated, &told,
                                                    (pinlane_request **)((char *)&request + 1)));

  /* The budget is spent: one request is withdrawn, another gets the freed memory. */
  OK(pinlane_buffer_alloc(pool, 4 * BYTES, &all));
  OK(pinlane_buffer_alloc_async(pool, BYTES, allocated, &told, &request));
  EXPECT(told.times == 4);
  OK(pinlane_request_cancel(request));
  sem_wait(&told.sem);
  EXPECT(told.status == PINLANE_STATUS_CANCELLED && !told.has_buffer && told.has_message);
  OK(pinlane_request_cancel(request)); /* too late: nothing happens */
  OK(pinlane_request_free(request));
  OK(pinlane_buffer_alloc_async(pool, BYTES, allocated, &told, &request));
  OK(pinlane_request_free(request)); /* goes on without its handle */
  OK(pinlane_pool_free(pool));       /* and without the pool's */
  OK(pinlane_buffer_free(all));
  sem_wait(&told.sem);
  EXPECT(told.status == PINLANE_STATUS_OK && told.has_buffer && told.times == 6);
  sem_destroy(&told.sem);
}

/* In a host function, calls that start a request are refused: the callback is never called. */
struct inside {
  pinlane_pool *pool;
  pinlane_ticket *pending, *complete;
  struct told told;
  pinlane_request *request;
  pinlane_status statuses[3];
};

static void start_requests(void *user) {
  struct inside *inside = user;
  struct told *told = &inside->told;
  inside->statuses[0] =
      pinlane_buffer_alloc_async(inside->pool, BYTES, allocated, told, &inside->request);
  inside->statuses[1] =
      pinlane_ticket_on_complete(inside->pending, completed, told, &inside->request);
  inside->statuses[2] = pinlane_ticket_on_complete(inside->complete, completed, told, NULL);
}

static void requests_are_refused_inside(void) {
  struct inside inside = {.pool = NULL};
  set_up_told(&inside.told);
  OK(pinlane_pool_create(rig.device, NULL, &inside.pool));
  OK(pinlane_stream_record(rig.stream, &inside.complete));
  OK(pinlane_ticket_wait(inside.complete));
  pinlane_stream *stream = NULL;
  OK(pinlane_stream_create(rig.device, NULL, &stream));
  OK(pinlane_device_buffer_fill(rig.stream, rig.gpu, 0, BYTES, "abcd", 4, &inside.pending));
  OK(pinlane_stream_launch_host(stream, start_requests, &inside, NULL));
  OK(pinlane_stream_synchronize(stream));
  EXPECT(inside.statuses[0] == PINLANE_STATUS_UNSUPPORTED);
  EXPECT(inside.statuses[1] == PINLANE_STATUS_UNSUPPORTED && inside.request == NULL);
  EXPECT(inside.statuses[2] == PINLANE_STATUS_UNSUPPORTED);
  /* If the callbacks of later requests have been called, those of all earlier ones have. */
  OK(pinlane_ticket_on_complete(inside.complete, completed, &inside.told, NULL));
  sem_wait(&inside.told.sem);
  EXPECT(inside.told.status == PINLANE_STATUS_OK && inside.told.times == 1);
  OK(pinlane_stream_synchronize(rig.stream));
  OK(pinlane_ticket_free(inside.pending));
  OK(pinlane_ticket_free(inside.complete));
  OK(pinlane_stream_free(stream));
  OK(pinlane_pool_free(inside.pool));
  sem_destroy(&inside.told.sem);
}

/* Eight threads repeatedly request more than the budget. Each callback fills its buffer, uploads
 * it, and frees it in flight. Some requests are withdrawn. */
enum { THREADS = 8, REQUESTS = 100, EACH = 4096 };
static struct {
  pinlane_pool *pool;
  void *gpu;
  atomic_int got, cancelled, wrong;
  sem_t told;
} tight;

static void use_and_free(void *user, pinlane_status status, pinlane_buffer *buffer) {
  (void)user;
  void *data = NULL;
  if (status == PINLANE_STATUS_OK) {
    tight.wrong += pinlane_buffer_write(buffer, &data) != PINLANE_STATUS_OK;
    memset(data, 7, EACH);
    tight.wrong += pinlane_upload(rig.stream, buffer, 0, tight.gpu, EACH, NULL);
    tight.wrong += pinlane_buffer_free(buffer) != PINLANE_STATUS_OK;
    tight.got++;
  } else {
    tight.wrong += status != PINLANE_STATUS_CANCELLED || buffer != NULL;
    tight.cancelled++;
  }
  sem_post(&tight.told);
}

static void *ask(void *argument) {
  (void)argument;
  for (int i = 0; i < REQUESTS; i++) {
    pinlane_request *request = NULL;
    tight.wrong += pinlane_buffer_alloc_async(tight.pool, EACH, use_and_free, NULL, &request);
    if (i % 10 == 9) {
      tight.wrong += pinlane_request_cancel(request);
    }
    tight.wrong += pinlane_request_free(request);
  }
  return NULL;
}

static void many_requests_share_a_tight_budget(void) {
  pinlane_pool_options budget = PINLANE_POOL_OPTIONS_INIT;
  budget.max_bytes = 3 * EACH;
  OK(pinlane_pool_create(rig.device, &budget, &tight.pool));
  OK(pinlane_device_buffer_address(rig.gpu, &tight.gpu));
  sem_init(&tight.told, 0, 0);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    if (pthread_create(&threads[i], NULL, ask, NULL) != 0) {
      abort();
    }
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
  }
  for (int i = 0; i < THREADS * REQUESTS; i++) {
    sem_wait(&tight.told);
  }
  EXPECT(tight.wrong == 0 && tight.got + tight.cancelled == THREADS * REQUESTS);
  EXPECT(tight.cancelled <= THREADS * REQUESTS / 10);
  pinlane_pool_stats stats = PINLANE_POOL_STATS_INIT;
  OK(pinlane_pool_get_stats(tight.pool, &stats));
  EXPECT(stats.peak_bytes <= 3 * EACH && stats.live_bytes == 0);
  OK(pinlane_pool_free(tight.pool));
  sem_destroy(&tight.told);
}

int main(void) {
  set_up(BYTES, BYTES);
  host_functions_run_once_and_in_order();
  waits_end_in_time();
  tickets_call_back();
  requests_for_memory_end();
  requests_are_refused_inside();
  many_requests_share_a_tight_budget();
  tear_down();
  return verdict("callbacks");
}
