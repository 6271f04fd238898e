// Asks for events of devices as a profiler does, which finds CUPTI by its name.
#include "driver.h"

#include <cstring>
#include <dlfcn.h>

int main(int, char** arguments) {
  FINE(cuInit(0));
  // The driver has loaded it.
  void* library = dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD);
  if (!library) return 1;
  const auto of = [&](const char* name) { return dlsym(library, name); };
  const auto subscribe =
      reinterpret_cast<int (*)(void**, void (*)(), void*)>(of("cuptiSubscribe"));
  const auto enable = reinterpret_cast<int (*)(int)>(of("cuptiActivityEnable"));
  const auto text = reinterpret_cast<int (*)(int, const char**)>(of("cuptiGetResultString"));
  const auto version = reinterpret_cast<int (*)(unsigned*)>(of("cuptiGetVersion"));
  if (!subscribe || !enable || !text || !version) return 2;
  void* subscriber = nullptr;
  const int code = subscribe(&subscriber, nullptr, nullptr);
  if (code != 27 || enable(3) != code) return 3;
  const char* name = nullptr;
  if (text(code, &name) || std::strcmp(name, "CUPTI_ERROR_NOT_SUPPORTED")) return 4;
  unsigned number = 0;
  if (version(&number) || number != 130000) return 5;
  std::puts("refused");
}
