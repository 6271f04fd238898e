// Events.
#include "questions.h"

#include <unistd.h>

namespace {

void CUDART_CB sleep_a_while(void *) { usleep(400'000); }

// Both recorded, the second after some work, and complete.
long elapsed(World &w, cudaEvent_t from, cudaEvent_t to) {
  cudaEventRecord(from, w.stream);
  cudaEventRecord(to, w.stream);
  cudaStreamSynchronize(w.stream);
  return cudaEventElapsedTime(&w.time, from, to);
}

cudaEvent_t other_timed(World &w) {
  cudaEventCreate(&w.new_event);
  return w.new_event;
}

} // namespace

Questions events() {
  return {
    ASK("cudaEventCreate NULL", cudaEventCreate(nullptr)),
        ASK("cudaEventCreateWithFlags NULL", cudaEventCreateWithFlags(nullptr, 0)),
        ASK("cudaEventCreateWithFlags 0x40", cudaEventCreateWithFlags(&w.new_event, 0x40)),
        ASK("cudaEventCreateWithFlags 8", cudaEventCreateWithFlags(&w.new_event, 8)),
        ASK("cudaEventCreateWithFlags blocking sync",
            cudaEventCreateWithFlags(&w.new_event, cudaEventBlockingSync)),
        ASK("cudaEventCreateWithFlags interprocess, timing",
            cudaEventCreateWithFlags(&w.new_event, cudaEventInterprocess)),
        ASK("cudaEventCreateWithFlags interprocess, no timing",
            cudaEventCreateWithFlags(&w.new_event, cudaEventInterprocess | cudaEventDisableTiming)),
        ASK("cudaEventCreateWithFlags all", cudaEventCreateWithFlags(&w.new_event, 7)),
        ASK("cudaEventDestroy NULL", cudaEventDestroy(nullptr)),
        ASK("cudaEventDestroy twice", cudaEventDestroy(w.destroyed_event)),
        STEPS("cudaEventDestroy pending", cudaLaunchHostFunc(w.stream, sleep_a_while, nullptr);
              cudaEventRecord(w.event, w.stream); return cudaEventDestroy(w.event);),
        ASK("cudaEventRecord NULL", cudaEventRecord(nullptr, w.stream)),
        ASK("cudaEventRecord destroyed stream", cudaEventRecord(w.event, w.destroyed)),
        ASK("cudaEventRecord destroyed event", cudaEventRecord(w.destroyed_event, w.stream)),
        ASK("cudaEventRecord default stream", cudaEventRecord(w.event, nullptr)),
        ASK("cudaEventRecord legacy stream", cudaEventRecord(w.event, cudaStreamLegacy)),
        ASK("cudaEventRecord per-thread stream", cudaEventRecord(w.event, cudaStreamPerThread)),
        ASK("cudaEventRecordWithFlags 0", cudaEventRecordWithFlags(w.event, w.stream, 0)),
        ASK("cudaEventRecordWithFlags external, no capture",
            cudaEventRecordWithFlags(w.event, w.stream, cudaEventRecordExternal)),
        ASK("cudaEventRecordWithFlags 2", cudaEventRecordWithFlags(w.event, w.stream, 2)),
        ASK("cudaEventQuery NULL", cudaEventQuery(nullptr)),
        ASK("cudaEventQuery never recorded", cudaEventQuery(w.event)),
        ASK("cudaEventQuery destroyed", cudaEventQuery(w.destroyed_event)),
        STEPS("cudaEventQuery pending", cudaLaunchHostFunc(w.stream, sleep_a_while, nullptr);
              cudaEventRecord(w.event, w.stream); return cudaEventQuery(w.event);),
        STEPS("cudaStreamQuery pending", cudaLaunchHostFunc(w.stream, sleep_a_while, nullptr);
              return cudaStreamQuery(w.stream);),
        ASK("cudaEventSynchronize NULL", cudaEventSynchronize(nullptr)),
        ASK("cudaEventSynchronize never recorded", cudaEventSynchronize(w.event)),
        ASK("cudaEventSynchronize destroyed", cudaEventSynchronize(w.destroyed_event)),
        ASK("cudaEventElapsedTime", elapsed(w, w.timed, other_timed(w))),
        ASK("cudaEventElapsedTime no timing", elapsed(w, w.event, w.timed)),
        STEPS("cudaEventElapsedTime never recorded", cudaEventRecord(w.timed, w.stream);
              cudaStreamSynchronize(w.stream);
              return cudaEventElapsedTime(&w.time, w.timed, other_timed(w));),
        STEPS("cudaEventElapsedTime pending", cudaEventRecord(w.timed, w.stream);
              cudaLaunchHostFunc(w.stream, sleep_a_while, nullptr);
              cudaEventRecord(other_timed(w), w.stream);
              return cudaEventElapsedTime(&w.time, w.timed, w.new_event);),
        STEPS("cudaEventElapsedTime of itself", const long answer = elapsed(w, w.timed, w.timed);
              return both(answer, 10, w.time == 0);),
        ASK("cudaEventElapsedTime NULL", cudaEventElapsedTime(&w.time, nullptr, w.timed)),
        ASK("cudaEventElapsedTime NULL end", cudaEventElapsedTime(&w.time, w.timed, nullptr)),
        STEPS("cudaEventElapsedTime NULL out", elapsed(w, w.timed, other_timed(w));
              return cudaEventElapsedTime(nullptr, w.timed, w.new_event);),
        ASK("cudaEventElapsedTime destroyed",
            cudaEventElapsedTime(&w.time, w.timed, w.destroyed_event)),
  };
}
