// Dereferences device memory on the host, which crashes with a GPU, too.
#include "cuda.h"

int main() {
  char* a;
  OK(cudaMalloc(reinterpret_cast<void**>(&a), 100));
  std::puts("allocated");
  std::fflush(stdout);
  std::printf("%d\n", *a);
}
