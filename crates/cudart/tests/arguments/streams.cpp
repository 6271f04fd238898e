// Streams.
#include "questions.h"

namespace {

void CUDART_CB nothing(void *) {}
void CUDART_CB no_callback(cudaStream_t, cudaError_t, void *) {}

long priority_given(World &w, int wanted) {
  const long answer = cudaStreamCreateWithPriority(&w.new_stream, cudaStreamNonBlocking, wanted);
  if (answer != 0)
    return answer;
  w.number = 99;
  cudaStreamGetPriority(w.new_stream, &w.number);
  return 100 - w.number;
}

long flags_of(World &w, cudaStream_t stream) {
  w.flags = 99;
  const long answer = cudaStreamGetFlags(stream, &w.flags);
  return both(answer, 100, w.flags);
}

Questions making() {
  return {
    ASK("cudaStreamCreate NULL", cudaStreamCreate(nullptr)),
        ASK("cudaStreamCreateWithFlags NULL", cudaStreamCreateWithFlags(nullptr, 0)),
        ASK("cudaStreamCreateWithFlags 77", cudaStreamCreateWithFlags(&w.new_stream, 77)),
        ASK("cudaStreamCreateWithFlags 2", cudaStreamCreateWithFlags(&w.new_stream, 2)),
        STEPS("cudaStreamCreateWithPriority far",
              const long answer = cudaStreamCreateWithPriority(&w.new_stream, 0, -1000);
              int p = 9; cudaStreamGetPriority(w.new_stream, &p); return answer * 100 - p;),
        ASK("cudaStreamCreateWithPriority -1, given", priority_given(w, -1)),
        ASK("cudaStreamCreateWithPriority 5, given", priority_given(w, 5)),
        ASK("cudaStreamCreateWithPriority NULL", cudaStreamCreateWithPriority(nullptr, 0, 0)),
        ASK("cudaStreamCreateWithPriority flags 77",
            cudaStreamCreateWithPriority(&w.new_stream, 77, 0)),
        STEPS("cudaDeviceGetStreamPriorityRange", int least = 9; int greatest = 9;
              const long answer = cudaDeviceGetStreamPriorityRange(&least, &greatest);
              return answer * 1000 + least * 100 - greatest;),
        ASK("cudaDeviceGetStreamPriorityRange NULL",
            cudaDeviceGetStreamPriorityRange(nullptr, nullptr)),
        ASK("cudaStreamDestroy NULL", cudaStreamDestroy(nullptr)),
        ASK("cudaStreamDestroy legacy", cudaStreamDestroy(cudaStreamLegacy)),
        ASK("cudaStreamDestroy per-thread", cudaStreamDestroy(cudaStreamPerThread)),
        ASK("cudaStreamDestroy twice", cudaStreamDestroy(w.destroyed)),
        ASK("cudaStreamDestroy 3", cudaStreamDestroy(wrong<cudaStream_t>(3))),
        ASK("cudaStreamGetFlags of a stream", flags_of(w, w.stream)),
        ASK("cudaStreamGetFlags NULL", flags_of(w, nullptr)),
        ASK("cudaStreamGetFlags legacy", flags_of(w, cudaStreamLegacy)),
        ASK("cudaStreamGetFlags per-thread", flags_of(w, cudaStreamPerThread)),
        ASK("cudaStreamGetFlags destroyed", flags_of(w, w.destroyed)),
        ASK("cudaStreamGetFlags NULL out", cudaStreamGetFlags(w.stream, nullptr)),
        STEPS("cudaStreamGetPriority NULL",
              const long answer = cudaStreamGetPriority(nullptr, &w.number);
              return both(answer, 100, w.number);),
        ASK("cudaStreamGetPriority NULL out", cudaStreamGetPriority(w.stream, nullptr)),
        STEPS("cudaStreamGetDevice", const long answer = cudaStreamGetDevice(w.stream, &w.number);
              return both(answer, 100, w.number);),
        ASK("cudaStreamGetDevice NULL out", cudaStreamGetDevice(w.stream, nullptr)),
        ASK("cudaStreamGetId NULL out", cudaStreamGetId(w.stream, nullptr)),
        ASK("cudaStreamGetId NULL", cudaStreamGetId(nullptr, &w.id)),
  };
}

Questions waiting() {
  return {
    ASK("cudaStreamQuery NULL", cudaStreamQuery(nullptr)),
        ASK("cudaStreamQuery per-thread", cudaStreamQuery(cudaStreamPerThread)),
        ASK("cudaStreamQuery destroyed", cudaStreamQuery(w.destroyed)),
        ASK("cudaStreamSynchronize NULL", cudaStreamSynchronize(nullptr)),
        ASK("cudaStreamSynchronize legacy", cudaStreamSynchronize(cudaStreamLegacy)),
        ASK("cudaStreamSynchronize per-thread", cudaStreamSynchronize(cudaStreamPerThread)),
        ASK("cudaStreamSynchronize destroyed", cudaStreamSynchronize(w.destroyed)),
        ASK("cudaStreamWaitEvent NULL event", cudaStreamWaitEvent(w.stream, nullptr, 0)),
        ASK("cudaStreamWaitEvent destroyed event",
            cudaStreamWaitEvent(w.stream, w.destroyed_event, 0)),
        ASK("cudaStreamWaitEvent destroyed stream", cudaStreamWaitEvent(w.destroyed, w.event, 0)),
        ASK("cudaStreamWaitEvent flags 5", cudaStreamWaitEvent(w.stream, w.event, 5)),
        ASK("cudaStreamWaitEvent never recorded", cudaStreamWaitEvent(w.stream, w.event, 0)),
        ASK("cudaStreamWaitEvent default stream", cudaStreamWaitEvent(nullptr, w.event, 0)),
        ASK("cudaStreamWaitEvent legacy stream", cudaStreamWaitEvent(cudaStreamLegacy, w.event, 0)),
        STEPS("cudaStreamWaitEvent external, no capture", cudaEventRecord(w.event, w.stream);
              return cudaStreamWaitEvent(w.stream, w.event, cudaEventWaitExternal);),
        STEPS("cudaStreamWaitEvent of its own event", cudaEventRecord(w.event, w.stream);
              return cudaStreamWaitEvent(w.stream, w.event, 0);),
  };
}

Questions calls() {
  return {
      ASK("cudaLaunchHostFunc NULL", cudaLaunchHostFunc(w.stream, nullptr, nullptr)),
      ASK("cudaLaunchHostFunc destroyed stream", cudaLaunchHostFunc(w.destroyed, nothing, nullptr)),
      ASK("cudaLaunchHostFunc default stream", cudaLaunchHostFunc(nullptr, nothing, nullptr)),
      ASK("cudaLaunchHostFunc legacy stream",
          cudaLaunchHostFunc(cudaStreamLegacy, nothing, nullptr)),
      ASK("cudaStreamAddCallback", cudaStreamAddCallback(w.stream, no_callback, nullptr, 0)),
      ASK("cudaStreamAddCallback NULL", cudaStreamAddCallback(w.stream, nullptr, nullptr, 0)),
      ASK("cudaStreamAddCallback flags 1",
          cudaStreamAddCallback(w.stream, no_callback, nullptr, 1)),
      ASK("cudaStreamAddCallback destroyed stream",
          cudaStreamAddCallback(w.destroyed, no_callback, nullptr, 0)),
      ASK("cudaStreamAttachMemAsync NULL", cudaStreamAttachMemAsync(w.stream, nullptr, 0, 4)),
      ASK("cudaStreamAttachMemAsync managed", cudaStreamAttachMemAsync(w.stream, w.managed, 0, 4)),
      ASK("cudaStreamAttachMemAsync device", cudaStreamAttachMemAsync(w.stream, w.device, 0, 4)),
      ASK("cudaStreamAttachMemAsync flags 9", cudaStreamAttachMemAsync(w.stream, w.managed, 0, 9)),
      ASK("cudaStreamCopyAttributes", cudaStreamCopyAttributes(w.stream, w.other_stream)),
      ASK("cudaStreamCopyAttributes default streams", cudaStreamCopyAttributes(nullptr, nullptr)),
  };
}

} // namespace

Questions streams() {
  Questions all = making();
  for (const Questions &more : {waiting(), calls()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}
