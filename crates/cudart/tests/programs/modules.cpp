// Modules of PTX whose kernels have stand-ins; functions of the driver by their names.
#include "driver.h"

#include <cstdint>
#include <cstring>
#include <vector>

#ifndef WITH_TOOLKIT
using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;
enum CUfunction_attribute { CU_FUNC_ATTRIBUTE_NUM_REGS = 4 };
extern "C" {
CUresult cuFuncGetAttribute(int*, CUfunction_attribute, CUfunction);
CUresult cuFuncGetModule(CUmodule*, CUfunction);
CUresult cuLibraryLoadData(CUlibrary*, const void*, void*, void**, unsigned, void*, void**,
                           unsigned);
CUresult cuLibraryUnload(CUlibrary);
CUresult cuLibraryGetKernel(CUkernel*, CUlibrary, const char*);
CUresult cuLibraryGetModule(CUmodule*, CUlibrary);
CUresult cuLibraryGetGlobal(CUdeviceptr*, size_t*, CUlibrary, const char*);
CUresult cuKernelGetFunction(CUfunction*, CUkernel);
CUresult cuKernelGetLibrary(CUlibrary*, CUkernel);
CUresult cuKernelGetName(const char**, CUkernel);
CUresult cuKernelGetAttribute(int*, CUfunction_attribute, CUkernel, CUdevice);
CUresult cuKernelSetAttribute(CUfunction_attribute, int, CUkernel, CUdevice);
cudaError_t cudaGetFuncBySymbol(CUfunction*, const void*);
}
#endif

extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*,
                            void*, int*);
}

namespace {

const char* const ptx = R"(
.version 8.0
.target sm_90
.address_size 64
.visible .global .align 4 .b8 counter[8];
.visible .entry scale(.param .u64 values, .param .align 4 .b8 how[8], .param .u32 count) { ret; }
.visible .entry silent() { ret; }
)";

struct How {
  float factor, offset;
};

// A library is a module, and its kernels are launched as functions are.
void library(CUstream stream, void** args) {
  CUlibrary library, other;
  CUkernel kernel;
  CUmodule module;
  CUfunction function;
  FINE(cuLibraryLoadData(&library, ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  GIVES(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel(&kernel, library, "other"));
  FINE(cuLibraryGetKernel(&kernel, library, "scale"));
  FINE(cuKernelGetLibrary(&other, kernel));
  EXPECT(other == library);
  const char* name = nullptr;
  FINE(cuKernelGetName(&name, kernel));
  EXPECT(std::strcmp(name, "scale") == 0);
  int registers = 0;
  FINE(cuKernelGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, 0));
  EXPECT(registers > 0);
  FINE(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_NUM_REGS, 1, kernel, 0));
  FINE(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 128, 1, 1, 16, stream, args,
                      nullptr));
  FINE(cuKernelGetFunction(&function, kernel));
  FINE(cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 16, stream, args, nullptr));
  FINE(cuLibraryGetModule(&module, library));
  FINE(cuModuleGetFunction(&function, module, "silent"));
  CUdeviceptr counter = 0;
  size_t size = 0;
  FINE(cuLibraryGetGlobal(&counter, &size, library, "counter"));
  EXPECT(counter != 0 && size == 8);
  FINE(cuStreamSynchronize(stream));
  FINE(cuLibraryUnload(library));
  GIVES(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload(library));
  GIVES(CUDA_ERROR_INVALID_HANDLE, cuKernelGetFunction(&function, kernel));
}

// A kernel that the program has registered with the runtime is a function too.
void registered(CUstream stream, void** args) {
  static const char shadow = 0;
  static int binary;
  __cudaRegisterFunction(__cudaRegisterFatBinary(&binary), &shadow, nullptr, "scale", -1, nullptr,
                         nullptr, nullptr, nullptr, nullptr);
  CUfunction function;
  CUmodule module;
  int registers = 0;
  EXPECT(cudaGetFuncBySymbol(&function, &shadow) == cudaSuccess);
  FINE(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
  EXPECT(registers > 0);
  GIVES(CUDA_ERROR_NOT_FOUND, cuFuncGetModule(&module, function));
  FINE(cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 16, stream, args, nullptr));
  FINE(cuStreamSynchronize(stream));
}

}  // namespace

// Its sizes are those of the text.
extern "C" void pinlane_kernel_scale(dim3, dim3, void** args, size_t shared) {
  auto* values = *static_cast<float**>(args[0]);
  const How how = *static_cast<How*>(args[1]);
  const int count = *static_cast<int*>(args[2]);
  EXPECT(shared == 16);
  for (int at = 0; at < count; ++at) values[at] = values[at] * how.factor + how.offset;
}

int main() {
  CUcontext context;
  CUmodule module;
  CUfunction scale, silent;
  CUstream stream;
  CUdeviceptr memory, counter;
  FINE(cuInit(0));
  FINE(cuDevicePrimaryCtxRetain(&context, 0));
  FINE(cuCtxSetCurrent(context));
  GIVES(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "no code"));
  GIVES(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&module, "/nowhere.ptx"));
  FINE(cuModuleLoadData(&module, ptx));
  GIVES(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&scale, module, "other"));
  FINE(cuModuleGetFunction(&scale, module, "scale"));
  FINE(cuModuleGetFunction(&silent, module, "silent"));

  std::vector<float> values(100, 2.0F);
  const size_t bytes = values.size() * sizeof(float);
  FINE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  FINE(cuMemAlloc(&memory, bytes));
  FINE(cuMemcpyHtoD(memory, values.data(), bytes));
  FINE(cuCtxSynchronize());
  How how = {3.0F, 1.0F};
  int count = 100;
  void* args[] = {&memory, &how, &count};
  FINE(cuLaunchKernel(scale, 1, 1, 1, 128, 1, 1, 16, stream, args, nullptr));
  // The arguments were taken at the launch.
  how = {0, 0};
  FINE(cuLaunchKernel(silent, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  GIVES(CUDA_ERROR_INVALID_VALUE,
        cuLaunchKernel(scale, 0, 1, 1, 128, 1, 1, 0, stream, args, nullptr));
  // More threads than 64 bits can count.
  GIVES(CUDA_ERROR_INVALID_VALUE,
        cuLaunchKernel(scale, 1, 1, 1, 1U << 31, 1U << 31, 4, 0, stream, args, nullptr));
  GIVES(CUDA_ERROR_INVALID_HANDLE,
        cuLaunchKernel(nullptr, 1, 1, 1, 128, 1, 1, 0, stream, args, nullptr));
  FINE(cuStreamSynchronize(stream));
  FINE(cuMemcpyDtoH(values.data(), memory, bytes));
  for (float value : values) EXPECT(value == 7.0F);
  how = {1.0F, 1.0F};
  library(stream, args);
  registered(stream, args);
  FINE(cuMemcpyDtoH(values.data(), memory, bytes));
  for (float value : values) EXPECT(value == 10.0F);

  size_t size;
  std::uint16_t words[4];
  FINE(cuModuleGetGlobal(&counter, &size, module, "counter"));
  EXPECT(size == sizeof words);
  FINE(cuMemsetD16(counter, 0x1234, 2));
  FINE(cuMemcpyDtoH(words, counter, sizeof words));
  EXPECT(words[0] == 0x1234 && words[1] == 0x1234 && words[2] == 0);
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD16(counter + 1, 1, 1));
  FINE(cuModuleUnload(module));
  GIVES(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction(&scale, module, "scale"));

  // A name means the newest version that the caller may know.
  CUresult (*free)(CUdeviceptr) = nullptr;
  void* found = &found;
  CUdriverProcAddressQueryResult status;
  FINE(cuGetProcAddress_v2("cuMemFree", reinterpret_cast<void**>(&free), 13000, 0, &status));
  EXPECT(status == 0);
  FINE(free(memory));
  // A missing name gives NULL, and no error. Impossible arguments are errors. GPUs do the same.
  const struct {
    const char* name;
    int version, flags, result, status;
  } questions[] = {
      {"cuNothing", 13000, 0, CUDA_SUCCESS, 1},
      {"", 0, 0, CUDA_SUCCESS, 1},
      {"cuMemAlloc_v2", 13000, 0, CUDA_SUCCESS, 1},
      {"cuMemAlloc", 13000, 3, CUDA_SUCCESS, 0},
      {"cuMemAlloc", -1, 0, CUDA_SUCCESS, 0},
      {"cuMemAlloc", 1000, 0, CUDA_SUCCESS, 2},
      {"cuMemAlloc", 0, 0, CUDA_SUCCESS, 2},
      {"cuMemAllocAsync", 11000, 0, CUDA_SUCCESS, 2},
      {"cuMemAllocAsync", 11020, 0, CUDA_SUCCESS, 0},
      {"cuCtxSynchronize", 12000, 0, CUDA_SUCCESS, 0},
      {"cuCtxSynchronize", 13000, 0, CUDA_SUCCESS, 0},
      {"cuMemcpyBatchAsync", 12080, 0, CUDA_SUCCESS, 0},
      {"cuMemAlloc", 13010, 0, CUDA_ERROR_INVALID_VALUE, 9},
      {"cuNothing", 99000, 0, CUDA_ERROR_INVALID_VALUE, 9},
      {"cuMemAlloc", 13000, 4, CUDA_ERROR_INVALID_VALUE, 9},
  };
  for (const auto& question : questions) {
    void* const untouched = &found;
    found = untouched;
    status = static_cast<CUdriverProcAddressQueryResult>(9);
    GIVES(question.result, cuGetProcAddress_v2(question.name, &found, question.version,
                                               question.flags, &status));
    EXPECT(status == question.status);
    EXPECT((found == untouched) == (status == 9));
    EXPECT((found == nullptr) == (status == 1 || status == 2));
  }
  FINE(cuGetProcAddress_v2("cuNothing", &found, 13000, 0, nullptr));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", nullptr, 13000, 0, nullptr));
  void *legacy, *of_thread;
  FINE(cuGetProcAddress_v2("cuMemcpyAsync", &legacy, 13000, 1, &status));
  FINE(cuGetProcAddress_v2("cuMemcpyAsync", &of_thread, 13000, 2, &status));
  EXPECT(legacy != of_thread);
  FINE(cuStreamDestroy(stream));
  std::puts("scaled");
}
