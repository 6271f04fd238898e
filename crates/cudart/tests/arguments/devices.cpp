// Devices, their attributes, peers, versions, errors; and other processes' memory.
#include "questions.h"

#include <cstring>

namespace {

long attribute(World &w, int number) {
  const auto named = static_cast<cudaDeviceAttr>(number);
  const long answer = cudaDeviceGetAttribute(&w.number, named, 0);
  return both(answer, 10000, w.number);
}

long limit(World &w, int number) {
  return cudaDeviceGetLimit(&w.size, static_cast<cudaLimit>(number));
}

Questions choosing() {
  return {
    ASK("cudaSetDevice 9", cudaSetDevice(9)), ASK("cudaSetDevice -1", cudaSetDevice(-1)),
        ASK("cudaSetDevice 0", cudaSetDevice(0)), ASK("cudaGetDevice NULL", cudaGetDevice(nullptr)),
        ASK("cudaGetDeviceCount NULL", cudaGetDeviceCount(nullptr)),
        ASK("cudaInitDevice", cudaInitDevice(0, 0, 0)),
        ASK("cudaInitDevice 9", cudaInitDevice(9, 0, 0)),
        ASK("cudaInitDevice flags 9", cudaInitDevice(0, 0, 9)),
        ASK("cudaSetDeviceFlags 0x100", cudaSetDeviceFlags(0x100)),
        ASK("cudaSetDeviceFlags 0", cudaSetDeviceFlags(0)),
        ASK("cudaSetDeviceFlags two ways to wait",
            cudaSetDeviceFlags(cudaDeviceScheduleSpin | cudaDeviceScheduleYield)),
        STEPS("cudaGetDeviceFlags", const long answer = cudaGetDeviceFlags(&w.flags);
              return both(answer, 100, w.flags);),
        ASK("cudaGetDeviceFlags NULL", cudaGetDeviceFlags(nullptr)),
        ASK("cudaSetValidDevices NULL", cudaSetValidDevices(nullptr, 0)),
        STEPS("cudaSetValidDevices 9", int device = 9; return cudaSetValidDevices(&device, 1);),
        ASK("cudaChooseDevice NULL", cudaChooseDevice(nullptr, nullptr)),
        STEPS("cudaGetDeviceProperties 9", static cudaDeviceProp properties;
              return cudaGetDeviceProperties(&properties, 9);),
        ASK("cudaGetDeviceProperties NULL", cudaGetDeviceProperties(nullptr, 0)),
        ASK("cudaDeviceReset", cudaDeviceReset()),
        STEPS("cudaDeviceReset twice", cudaDeviceReset(); return cudaDeviceReset();),
        STEPS("cudaDeviceReset, then cudaFree", cudaDeviceReset(); return cudaFree(w.device);),
        STEPS("cudaDeviceReset, then cudaMalloc", cudaDeviceReset();
              return cudaMalloc(&w.out, 64);),
        STEPS("cudaDeviceReset, then cudaFreeHost", cudaDeviceReset();
              return cudaFreeHost(w.host);),
        STEPS("cudaDeviceReset, then cudaStreamQuery", cudaDeviceReset();
              return cudaStreamQuery(w.stream);),
        STEPS("cudaDeviceReset, then cudaEventQuery", cudaDeviceReset();
              return cudaEventQuery(w.event);),
  };
}

Questions attributes() {
  return {
    ASK("cudaDeviceGetAttribute 9999",
        cudaDeviceGetAttribute(&w.number, static_cast<cudaDeviceAttr>(9999), 0)),
        ASK("cudaDeviceGetAttribute 0",
            cudaDeviceGetAttribute(&w.number, static_cast<cudaDeviceAttr>(0), 0)),
        ASK("cudaDeviceGetAttribute -1",
            cudaDeviceGetAttribute(&w.number, static_cast<cudaDeviceAttr>(-1), 0)),
        ASK("cudaDeviceGetAttribute bad device",
            cudaDeviceGetAttribute(&w.number, cudaDevAttrWarpSize, 9)),
        ASK("cudaDeviceGetAttribute NULL", cudaDeviceGetAttribute(nullptr, cudaDevAttrWarpSize, 0)),
        ASK("attribute 10, warp size", attribute(w, 10)),
        ASK("attribute 15, overlap", attribute(w, 15)),
        ASK("attribute 18, integrated", attribute(w, 18)),
        ASK("attribute 19, maps host memory", attribute(w, 19)),
        ASK("attribute 20, compute mode", attribute(w, 20)),
        ASK("attribute 31, concurrent kernels", attribute(w, 31)),
        ASK("attribute 41, unified addressing", attribute(w, 41)),
        ASK("attribute 78, stream priorities", attribute(w, 78)),
        ASK("attribute 83, managed memory", attribute(w, 83)),
        ASK("attribute 89, concurrent managed access", attribute(w, 89)),
        ASK("attribute 91, registered memory by its address", attribute(w, 91)),
        ASK("attribute 99, registers host memory", attribute(w, 99)),
        ASK("attribute 113, registers read-only", attribute(w, 113)),
        ASK("attribute 115, pools", attribute(w, 115)), ASK("cudaDeviceGetLimit 99", limit(w, 99)),
        ASK("cudaDeviceGetLimit 0", limit(w, 0)),
        ASK("cudaDeviceGetLimit NULL", cudaDeviceGetLimit(nullptr, static_cast<cudaLimit>(0))),
        ASK("cudaDeviceSetLimit 99", cudaDeviceSetLimit(static_cast<cudaLimit>(99), 1)),
        ASK("cudaDeviceSetLimit stack", cudaDeviceSetLimit(static_cast<cudaLimit>(0), 2048)),
        STEPS("cudaDeviceSetLimit stack, read back",
              cudaDeviceSetLimit(static_cast<cudaLimit>(0), 2048);
              const long answer = limit(w, 0); return both(answer, 100000, w.size);),
        ASK("cudaDeviceGetCacheConfig NULL", cudaDeviceGetCacheConfig(nullptr)),
        ASK("cudaDeviceSetCacheConfig 9", cudaDeviceSetCacheConfig(static_cast<cudaFuncCache>(9))),
  };
}

Questions peers() {
  return {
    STEPS("cudaDeviceCanAccessPeer itself", w.number = 9;
          const long answer = cudaDeviceCanAccessPeer(&w.number, 0, 0);
          return both(answer, 10, w.number);),
        ASK("cudaDeviceCanAccessPeer 9", cudaDeviceCanAccessPeer(&w.number, 0, 9)),
        ASK("cudaDeviceCanAccessPeer from 9", cudaDeviceCanAccessPeer(&w.number, 9, 0)),
        ASK("cudaDeviceCanAccessPeer NULL", cudaDeviceCanAccessPeer(nullptr, 0, 0)),
        ASK("cudaDeviceEnablePeerAccess itself", cudaDeviceEnablePeerAccess(0, 0)),
        ASK("cudaDeviceEnablePeerAccess 9", cudaDeviceEnablePeerAccess(9, 0)),
        ASK("cudaDeviceEnablePeerAccess flags 1", cudaDeviceEnablePeerAccess(0, 1)),
        ASK("cudaDeviceEnablePeerAccess 9, flags 1", cudaDeviceEnablePeerAccess(9, 1)),
        ASK("cudaDeviceDisablePeerAccess itself", cudaDeviceDisablePeerAccess(0)),
        ASK("cudaDeviceDisablePeerAccess 9", cudaDeviceDisablePeerAccess(9)),
        ASK("cudaDeviceGetP2PAttribute itself",
            cudaDeviceGetP2PAttribute(&w.number, cudaDevP2PAttrAccessSupported, 0, 0)),
        ASK("cudaDeviceGetP2PAttribute 9",
            cudaDeviceGetP2PAttribute(&w.number, cudaDevP2PAttrAccessSupported, 0, 9)),
        ASK("cudaDeviceGetP2PAttribute NULL",
            cudaDeviceGetP2PAttribute(nullptr, cudaDevP2PAttrAccessSupported, 0, 0)),
  };
}

Questions names() {
  return {
    STEPS("cudaDeviceGetPCIBusId short", char id[4]; return cudaDeviceGetPCIBusId(id, 4, 0);),
        STEPS("cudaDeviceGetPCIBusId 0 characters", char id[4];
              return cudaDeviceGetPCIBusId(id, 0, 0);),
        STEPS("cudaDeviceGetPCIBusId 9", char id[32]; return cudaDeviceGetPCIBusId(id, 32, 9);),
        ASK("cudaDeviceGetPCIBusId NULL", cudaDeviceGetPCIBusId(nullptr, 32, 0)),
        STEPS("cudaDeviceGetByPCIBusId of its own", char id[32]; cudaDeviceGetPCIBusId(id, 32, 0);
              w.number = 9; const long answer = cudaDeviceGetByPCIBusId(&w.number, id);
              return both(answer, 10, w.number);),
        ASK("cudaDeviceGetByPCIBusId of nothing", cudaDeviceGetByPCIBusId(&w.number, "rubbish")),
        ASK("cudaDeviceGetByPCIBusId NULL", cudaDeviceGetByPCIBusId(&w.number, nullptr)),
        ASK("cudaDriverGetVersion NULL", cudaDriverGetVersion(nullptr)),
        ASK("cudaRuntimeGetVersion NULL", cudaRuntimeGetVersion(nullptr)),
        ASK("cudaGetErrorName 9999", std::strcmp(cudaGetErrorName(static_cast<cudaError_t>(9999)),
                                                 "unrecognized error code")),
        ASK("cudaGetErrorName 1",
            std::strcmp(cudaGetErrorName(static_cast<cudaError_t>(1)), "cudaErrorInvalidValue")),
        ASK("cudaGetErrorString 9999",
            std::strcmp(cudaGetErrorString(static_cast<cudaError_t>(9999)),
                        "unrecognized error code")),
        STEPS("cudaGetLastError twice", (void)cudaSetDevice(9); (void)cudaGetLastError();
              return cudaGetLastError();),
        STEPS("cudaPeekAtLastError twice", (void)cudaSetDevice(9); (void)cudaPeekAtLastError();
              return cudaPeekAtLastError();),
        STEPS("cudaGetLastError past a success", (void)cudaSetDevice(9); (void)cudaSetDevice(0);
              return cudaGetLastError();),
        STEPS("cudaGetLastError of cudaErrorNotReady", cudaLaunchHostFunc(
                                                           w.stream,
                                                           [](void *) {
                                                             volatile int n = 0;
                                                             while (n < 100000000)
                                                               n = n + 1;
                                                           },
                                                           nullptr);
              (void)cudaStreamQuery(w.stream); return cudaGetLastError();),
  };
}

Questions processes() {
  return {
    STEPS("cudaIpcGetMemHandle host", cudaIpcMemHandle_t handle;
          return cudaIpcGetMemHandle(&handle, w.host);),
        STEPS("cudaIpcGetMemHandle pageable", cudaIpcMemHandle_t handle;
              return cudaIpcGetMemHandle(&handle, w.pageable);),
        ASK("cudaIpcGetMemHandle NULL out", cudaIpcGetMemHandle(nullptr, w.device)),
        STEPS("cudaIpcOpenMemHandle of its own process", cudaIpcMemHandle_t handle;
              cudaIpcGetMemHandle(&handle, w.device);
              return cudaIpcOpenMemHandle(&w.out, handle, cudaIpcMemLazyEnablePeerAccess);),
        ASK("cudaIpcCloseMemHandle not opened", cudaIpcCloseMemHandle(w.device)),
        STEPS("cudaIpcGetEventHandle of one without the flag", cudaIpcEventHandle_t handle;
              return cudaIpcGetEventHandle(&handle, w.event);),
        ASK("cudaIpcGetEventHandle NULL out", cudaIpcGetEventHandle(nullptr, w.event)),
  };
}

} // namespace

Questions devices() {
  Questions all = choosing();
  for (const Questions &more : {attributes(), peers(), names(), processes()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}
