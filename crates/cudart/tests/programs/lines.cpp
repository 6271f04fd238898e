// Makes the same wrong calls from two lines again and again.
#include "cuda.h"

int main() {
  void* nothing = reinterpret_cast<void*>(16);
  for (int turn = 0; turn < 3; ++turn) {
    if (cudaFree(nothing) != cudaErrorInvalidValue) return 1; // the first
    if (cudaFree(nothing) != cudaErrorInvalidValue) return 2; // the second
  }
}
