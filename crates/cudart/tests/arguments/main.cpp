// Asks the questions, so many at a time, and prints a line for each, in the order of the tables.
// On a GPU, in this folder:
//
//   cuda=/usr/local/cuda
//   g++ -std=c++17 -I $cuda/include *.cpp -pthread -L $cuda/lib64 -lcudart -lcuda
//   ./a.out 12 > h100.txt
//
//   arguments [JOBS [TEXT]]        TEXT: only the questions whose names contain it
//
//   NAME  ANSWER last CODE after CODE
//
// "last" is what cudaGetLastError says after the question, and "after" what the device says when
// all is done. A question that ends its process says which signal it was. After 20 s that is 14.
#include "questions.h"

#include <cstdio>
#include <cstdlib>
#include <map>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

char *mapped(int protection, int flags, int file) {
  void *memory = mmap(nullptr, BYTES, protection, flags, file, 0);
  if (memory == MAP_FAILED)
    std::abort();
  return static_cast<char *>(memory);
}

char *read_only_file() {
  char path[] = "/tmp/argumentsXXXXXX";
  const int file = mkstemp(path);
  if (file < 0 || ftruncate(file, BYTES) != 0)
    std::abort();
  unlink(path);
  char *memory = mapped(PROT_READ, MAP_SHARED, file);
  close(file);
  return memory;
}

void allocate(World &w) {
  cudaHostAlloc(reinterpret_cast<void **>(&w.host), BYTES, 0);
  cudaHostAlloc(reinterpret_cast<void **>(&w.other_host), BYTES, 0);
  cudaMalloc(reinterpret_cast<void **>(&w.device), BYTES);
  cudaMalloc(reinterpret_cast<void **>(&w.other_device), BYTES);
  cudaMallocManaged(reinterpret_cast<void **>(&w.managed), BYTES, cudaMemAttachGlobal);
  w.pageable = static_cast<char *>(aligned_alloc(4096, BYTES));
  std::memset(w.pageable, 1, BYTES);
  std::memset(w.host, 1, BYTES);
  w.unmapped = mapped(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  munmap(w.unmapped, BYTES);
  w.read_only = read_only_file();
}

void create(World &w) {
  cudaStreamCreateWithFlags(&w.stream, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&w.other_stream, cudaStreamNonBlocking);
  cudaEventCreateWithFlags(&w.event, cudaEventDisableTiming);
  cudaEventCreate(&w.timed);
  cudaDeviceGetDefaultMemPool(&w.default_pool, 0);
}

// Last, so that nothing takes their places.
void destroy(World &w) {
  cudaStreamCreateWithFlags(&w.destroyed, cudaStreamNonBlocking);
  cudaStreamDestroy(w.destroyed);
  cudaEventCreate(&w.destroyed_event);
  cudaEventDestroy(w.destroyed_event);
  cudaHostAlloc(reinterpret_cast<void **>(&w.freed_host), BYTES, 0);
  cudaFreeHost(w.freed_host);
  cudaMalloc(reinterpret_cast<void **>(&w.freed_device), BYTES);
  cudaFree(w.freed_device);
}

struct Answer {
  long answer, last, after;
};

[[noreturn]] void answer(const Question &question, int pipe) {
  alarm(20);
  World w{};
  allocate(w);
  create(w);
  destroy(w);
  w.out = wrong<void *>(1);
  (void)cudaGetLastError();
  Answer answer{};
  answer.answer = question.ask(w);
  answer.last = cudaGetLastError();
  answer.after = cudaDeviceSynchronize();
  const bool told = write(pipe, &answer, sizeof answer) == sizeof answer;
  _exit(told ? 0 : 1);
}

// A process that answers a question.
struct Running {
  size_t question;
  int pipe;
};

std::string ended_with(const Running &running, int status) {
  Answer answer{};
  const bool told = read(running.pipe, &answer, sizeof answer) == sizeof answer;
  close(running.pipe);
  char line[80];
  if (told) {
    std::snprintf(line, sizeof line, "%ld last %ld after %ld", answer.answer, answer.last,
                  answer.after);
  } else {
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    std::snprintf(line, sizeof line, "died, signal %d", signal);
  }
  return line;
}

Running start(const Questions &questions, size_t question, pid_t &child) {
  int ends[2];
  if (pipe(ends) != 0)
    std::abort();
  child = fork();
  if (child < 0)
    std::abort();
  if (child == 0)
    answer(questions[question], ends[1]);
  close(ends[1]);
  return {question, ends[0]};
}

std::vector<std::string> answers(const Questions &questions, size_t jobs) {
  std::vector<std::string> answers(questions.size());
  std::map<pid_t, Running> running;
  for (size_t next = 0; next < questions.size() || !running.empty();) {
    if (next < questions.size() && running.size() < jobs) {
      pid_t child = 0;
      const Running started = start(questions, next++, child);
      running.emplace(child, started);
      continue;
    }
    int status = 0;
    const pid_t child = waitpid(-1, &status, 0);
    const auto found = running.find(child);
    if (found == running.end())
      continue;
    answers[found->second.question] = ended_with(found->second, status);
    running.erase(found);
  }
  return answers;
}

Questions all(const char *text) {
  Questions chosen;
  for (auto table : {host_memory, device_memory, pointers, copies, planes, fills, streams, events,
                     devices, pools, batches, graphs, captures, host_functions, driver_contexts,
                     driver_memory, driver_work}) {
    for (const Question &question : table()) {
      if (question.name.find(text) != std::string::npos)
        chosen.push_back(question);
    }
  }
  return chosen;
}

} // namespace

int main(int count, char **arguments) {
  const int jobs = count > 1 ? std::atoi(arguments[1]) : 1;
  const Questions questions = all(count > 2 ? arguments[2] : "");
  const std::vector<std::string> given = answers(questions, jobs > 0 ? jobs : 1);
  for (size_t question = 0; question < questions.size(); ++question) {
    std::printf("%-66s %s\n", questions[question].name.c_str(), given[question].c_str());
  }
}
