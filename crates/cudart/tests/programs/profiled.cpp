// Asks for events of devices as a profiler does, which links with CUPTI.
#include "cuda.h"

#include <cstring>

extern "C" {
int cuptiSubscribe(void**, void (*)(), void*);
int cuptiActivityEnable(int);
int cuptiGetResultString(int, const char**);
}

int main() {
  void* subscriber = nullptr;
  const int code = cuptiSubscribe(&subscriber, nullptr, nullptr);
  const char* name = nullptr;
  if (code != 27 || cuptiActivityEnable(3) != code) return 1;
  if (cuptiGetResultString(code, &name) || std::strcmp(name, "CUPTI_ERROR_NOT_SUPPORTED")) return 2;
  std::puts("refused");
}
