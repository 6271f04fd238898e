// Begins as NVIDIA's own runtime does, which gets the driver from the dynamic linker and asks it
// for tables. With the toolkit it is that runtime.
#include "cuda.h"

#ifdef WITH_TOOLKIT
int main() {
  int count = -1;
  void* memory = nullptr;
  const cudaError_t counted = cudaGetDeviceCount(&count), allocated = cudaMalloc(&memory, 100);
  std::printf("%d %d\n", static_cast<int>(counted), static_cast<int>(allocated));
}
#else
#include <dlfcn.h>

int main() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  EXPECT(driver != nullptr);
  using Find = int (*)(const char*, void**, int, unsigned long long, int*);
  const auto find = reinterpret_cast<Find>(dlsym(driver, "cuGetProcAddress_v2"));
  EXPECT(find != nullptr);
  int (*tables)(const void**, const void*) = nullptr;
  EXPECT(find("cuGetExportTable", reinterpret_cast<void**>(&tables), 13000, 0, nullptr) == 0);
  EXPECT(tables != nullptr);
  const unsigned char id[16] = {};
  const void* table = id;
  const int first = tables(&table, id), second = tables(&table, id);
  EXPECT(table == nullptr);
  std::printf("%d %d\n", first, second);
}
#endif
