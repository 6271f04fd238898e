// The driver: devices, contexts, names. The primary context of device 0 is current.
#include "questions.h"

#include <cstring>

namespace {

long attribute(World &w, int number, int device) {
  return cuDeviceGetAttribute(&w.number, static_cast<CUdevice_attribute>(number), device);
}

// Without a context.
#define ALONE(name, ...)                                                                           \
  STEPS(name ", no context", (void)w; cuCtxSetCurrent(nullptr); return __VA_ARGS__;)

CUcontext current() {
  CUcontext context = nullptr;
  cuCtxGetCurrent(&context);
  return context;
}

// A context of its own, current.
CUcontext own(World &w) {
  w.context = nullptr;
  cuCtxCreate(&w.context, nullptr, 0, 0);
  return w.context;
}

long entry_point(World &w, const char *name, int version) {
  CUdriverProcAddressQueryResult found{};
  w.out = nullptr;
  const long answer = cuGetProcAddress(name, &w.out, version, 0, &found);
  return both(answer, 100, found * 10 + (w.out != nullptr));
}

Questions hardware() {
  return {
    ASK("cuInit flags 1", cuInit(1)), ASK("cuDriverGetVersion NULL", cuDriverGetVersion(nullptr)),
        ASK("cuDeviceGet 9", cuDeviceGet(&w.number, 9)),
        ASK("cuDeviceGet -1", cuDeviceGet(&w.number, -1)),
        ASK("cuDeviceGet NULL", cuDeviceGet(nullptr, 0)),
        ASK("cuDeviceGetCount NULL", cuDeviceGetCount(nullptr)),
        STEPS("cuDeviceGetName 9", char name[64]; return cuDeviceGetName(name, 64, 9);),
        STEPS("cuDeviceGetName 0 characters", char name[64]; return cuDeviceGetName(name, 0, 0);),
        STEPS("cuDeviceGetName 4 characters", char name[64];
              const long answer = cuDeviceGetName(name, 4, 0);
              return both(answer, 10, std::strlen(name));),
        ASK("cuDeviceGetName NULL", cuDeviceGetName(nullptr, 64, 0)),
        ASK("cuDeviceTotalMem NULL", cuDeviceTotalMem(nullptr, 0)),
        ASK("cuDeviceTotalMem 9", cuDeviceTotalMem(&w.size, 9)),
        ASK("cuDeviceGetAttribute 9999", attribute(w, 9999, 0)),
        ASK("cuDeviceGetAttribute device 9", attribute(w, 10, 9)),
        ASK("cuDeviceGetAttribute NULL",
            cuDeviceGetAttribute(nullptr, static_cast<CUdevice_attribute>(10), 0)),
        ASK("cuDeviceGetUuid NULL", cuDeviceGetUuid(nullptr, 0)),
        ASK("cuDeviceCanAccessPeer itself", cuDeviceCanAccessPeer(&w.number, 0, 0)),
        ASK("cuDeviceCanAccessPeer 9", cuDeviceCanAccessPeer(&w.number, 0, 9)),
  };
}

Questions primary() {
  return {
    ASK("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&w.context, 0)),
        ASK("cuDevicePrimaryCtxRetain NULL", cuDevicePrimaryCtxRetain(nullptr, 0)),
        ASK("cuDevicePrimaryCtxRetain 9", cuDevicePrimaryCtxRetain(&w.context, 9)),
        STEPS("cuDevicePrimaryCtxRetain is the runtime's", cuDevicePrimaryCtxRetain(&w.context, 0);
              return w.context == current();),
        ASK("cuDevicePrimaryCtxRelease 9", cuDevicePrimaryCtxRelease(9)),
        STEPS("cuDevicePrimaryCtxRelease twice", cuDevicePrimaryCtxRelease(0);
              return cuDevicePrimaryCtxRelease(0);),
        STEPS("cuDevicePrimaryCtxGetState",
              const long answer = cuDevicePrimaryCtxGetState(0, &w.flags, &w.number);
              return both(answer, 10, w.number);),
        ASK("cuDevicePrimaryCtxGetState NULL", cuDevicePrimaryCtxGetState(0, nullptr, nullptr)),
        ASK("cuDevicePrimaryCtxGetState 9", cuDevicePrimaryCtxGetState(9, &w.flags, &w.number)),
        ASK("cuDevicePrimaryCtxSetFlags 0x1000", cuDevicePrimaryCtxSetFlags(0, 0x1000)),
        ASK("cuDevicePrimaryCtxSetFlags 9", cuDevicePrimaryCtxSetFlags(9, 0)),
        ASK("cuDevicePrimaryCtxReset 9", cuDevicePrimaryCtxReset(9)),
  };
}

Questions contexts() {
  return {
    STEPS("cuCtxCreate", return cuCtxCreate(&w.context, nullptr, 0, 0);),
        ASK("cuCtxCreate NULL", cuCtxCreate(nullptr, nullptr, 0, 0)),
        ASK("cuCtxCreate device 9", cuCtxCreate(&w.context, nullptr, 0, 9)),
        ASK("cuCtxCreate flags 0x1000", cuCtxCreate(&w.context, nullptr, 0x1000, 0)),
        ASK("cuCtxCreate flags 3", cuCtxCreate(&w.context, nullptr, 3, 0)),
        ASK("cuCtxDestroy", cuCtxDestroy(own(w))), ASK("cuCtxDestroy NULL", cuCtxDestroy(nullptr)),
        ASK("cuCtxDestroy the primary", cuCtxDestroy(current())),
        STEPS("cuCtxDestroy twice", own(w); cuCtxDestroy(w.context);
              return cuCtxDestroy(w.context);),
        STEPS("cuCtxDestroy, then cuCtxSetCurrent", own(w); cuCtxDestroy(w.context);
              return cuCtxSetCurrent(w.context);),
        STEPS("cuCtxDestroy, then cuMemAlloc", own(w); cuCtxDestroy(w.context);
              return cuMemAlloc(&w.address, 64);),
        ASK("cuCtxGetCurrent NULL", cuCtxGetCurrent(nullptr)),
        STEPS("cuCtxGetCurrent, no context", cuCtxSetCurrent(nullptr);
              w.context = wrong<CUcontext>(9); const long answer = cuCtxGetCurrent(&w.context);
              return both(answer, 10, w.context == nullptr);),
        ASK("cuCtxSetCurrent NULL", cuCtxSetCurrent(nullptr)),
        ASK("cuCtxPushCurrent NULL", cuCtxPushCurrent(nullptr)),
        ASK("cuCtxPushCurrent", cuCtxPushCurrent(current())),
        ASK("cuCtxPopCurrent", cuCtxPopCurrent(&w.context)),
        ASK("cuCtxPopCurrent NULL out", cuCtxPopCurrent(nullptr)),
        ALONE("cuCtxPopCurrent", cuCtxPopCurrent(&w.context)),
        STEPS("cuCtxPopCurrent twice", cuCtxPopCurrent(&w.context);
              return cuCtxPopCurrent(&w.context);),
        ASK("cuCtxGetDevice NULL", cuCtxGetDevice(nullptr)),
        ALONE("cuCtxGetDevice", cuCtxGetDevice(&w.number)),
        ALONE("cuCtxSynchronize", cuCtxSynchronize()),
        ASK("cuCtxGetFlags NULL", cuCtxGetFlags(nullptr)),
        ALONE("cuCtxGetFlags", cuCtxGetFlags(&w.flags)),
        ASK("cuCtxGetApiVersion NULL out", cuCtxGetApiVersion(current(), nullptr)),
        ASK("cuCtxGetApiVersion NULL context", cuCtxGetApiVersion(nullptr, &w.flags)),
        ASK("cuCtxGetLimit 99", cuCtxGetLimit(&w.size, static_cast<CUlimit>(99))),
        ASK("cuCtxSetLimit 99", cuCtxSetLimit(static_cast<CUlimit>(99), 1)),
        ASK("cuCtxEnablePeerAccess NULL", cuCtxEnablePeerAccess(nullptr, 0)),
        ASK("cuCtxEnablePeerAccess itself", cuCtxEnablePeerAccess(current(), 0)),
        ASK("cuCtxEnablePeerAccess flags 1", cuCtxEnablePeerAccess(current(), 1)),
        ASK("cuCtxDisablePeerAccess NULL", cuCtxDisablePeerAccess(nullptr)),
        ASK("cuCtxDisablePeerAccess itself", cuCtxDisablePeerAccess(current())),
        ALONE("cuMemAlloc", cuMemAlloc(&w.address, 64)),
        ALONE("cuMemAllocHost", cuMemAllocHost(&w.out, 64)),
        ALONE("cuMemHostRegister", cuMemHostRegister(w.pageable, BYTES, 0)),
        ALONE("cuMemFree", cuMemFree(at(w.device))), ALONE("cuMemFreeHost", cuMemFreeHost(w.host)),
        ALONE("cuMemcpyHtoD", cuMemcpyHtoD(at(w.device), w.host, 64)),
        ALONE("cuMemcpyHtoDAsync", cuMemcpyHtoDAsync(at(w.device), w.host, 64, w.stream)),
        ALONE("cuStreamQuery", cuStreamQuery(w.stream)),
        ALONE("cuStreamQuery of the default", cuStreamQuery(nullptr)),
        ALONE("cuStreamCreate", cuStreamCreate(&w.new_stream, 0)),
        ALONE("cuEventQuery", cuEventQuery(w.event)),
        ALONE("cuEventCreate", cuEventCreate(&w.new_event, 0)),
        ALONE("cuPointerGetAttribute",
              cuPointerGetAttribute(&w.number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at(w.device))),
        ALONE("cudaMalloc", cudaMalloc(&w.out, 64)),
        STEPS("cudaMalloc in a context of its own", own(w); return cudaMalloc(&w.out, 64);),
        STEPS("cudaStreamQuery of another context's", own(w); return cudaStreamQuery(w.stream);),
  };
}

Questions names() {
  return {
    ASK("cuGetProcAddress cuMemAlloc", entry_point(w, "cuMemAlloc", 12000)),
        ASK("cuGetProcAddress cuMemAlloc_v2", entry_point(w, "cuMemAlloc_v2", 12000)),
        ASK("cuGetProcAddress unknown", entry_point(w, "cuNothing", 12000)),
        ASK("cuGetProcAddress too old", entry_point(w, "cuMemAllocAsync", 10000)),
        ASK("cuGetProcAddress version 0", entry_point(w, "cuMemAlloc", 0)),
        ASK("cuGetProcAddress version 99000", entry_point(w, "cuMemAlloc", 99000)),
        ASK("cuGetProcAddress empty", entry_point(w, "", 12000)),
        ASK("cuGetProcAddress NULL name", entry_point(w, nullptr, 12000)),
        ASK("cuGetProcAddress NULL out",
            cuGetProcAddress("cuMemAlloc", nullptr, 12000, 0, nullptr)),
        ASK("cuGetProcAddress NULL found",
            cuGetProcAddress("cuMemAlloc", &w.out, 12000, 0, nullptr)),
        ASK("cuGetProcAddress flags 0x80",
            cuGetProcAddress("cuMemAlloc", &w.out, 12000, 0x80, nullptr)),
        STEPS("cuGetErrorName 9999", const char *name = "";
              const long answer = cuGetErrorName(static_cast<CUresult>(9999), &name);
              return both(answer, 10, name == nullptr);),
        ASK("cuGetErrorName NULL", cuGetErrorName(static_cast<CUresult>(1), nullptr)),
        STEPS("cuGetErrorName 1", const char *name = "";
              const long answer = cuGetErrorName(static_cast<CUresult>(1), &name);
              return both(answer, 10, std::strcmp(name, "CUDA_ERROR_INVALID_VALUE") == 0);),
        STEPS("cuGetErrorString 9999", const char *text = "";
              const long answer = cuGetErrorString(static_cast<CUresult>(9999), &text);
              return both(answer, 10, text == nullptr);),
        ASK("cuModuleLoad missing file", cuModuleLoad(wrong<CUmodule *>(at(&w.out)), "/nothing")),
        ASK("cuModuleLoad NULL", cuModuleLoad(wrong<CUmodule *>(at(&w.out)), nullptr)),
        ASK("cuModuleLoadData NULL", cuModuleLoadData(wrong<CUmodule *>(at(&w.out)), nullptr)),
        ASK("cuModuleUnload NULL", cuModuleUnload(nullptr)),
        ASK("cuModuleGetFunction NULL",
            cuModuleGetFunction(wrong<CUfunction *>(at(&w.out)), nullptr, "f")),
        ASK("cuLaunchKernel NULL",
            cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, w.stream, nullptr, nullptr)),
  };
}

} // namespace

Questions driver_contexts() {
  Questions all = hardware();
  for (const Questions &more : {primary(), contexts(), names()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}
