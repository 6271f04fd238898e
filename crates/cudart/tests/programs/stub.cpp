// A library in the place of NVIDIA's: programs are linked with it, and run without it.
extern "C" {
int cudaMalloc(void**, unsigned long) { return 999; }
int cudaFree(void*) { return 999; }
int cudaMemset(void*, int, unsigned long) { return 999; }
const char* cudaGetErrorName(int) { return "of the stub"; }
}
