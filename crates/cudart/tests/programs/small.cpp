// A program that links with a stub.
#include "cuda.h"

int main() {
  void* a;
  OK(cudaMalloc(&a, 100));
  OK(cudaMemset(a, 1, 100));
  OK(cudaFree(a));
  std::puts("replaced");
}
