// What the questions use of CUDA 13 beside what the other programs use, for machines without the
// toolkit's headers.
#pragma once

#include "../programs/driver.h"

#define CUDART_CB
#define CUDART_VERSION 13000

using cudaHostFn_t = void (*)(void *);
using cudaGraphNode_t = struct CUgraphNode_st *;
using cudaArray_t = struct cudaArray *;
using cudaFuncCache = int;
using cudaLimit = int;
using CUdevice_attribute = int;
using CUlimit = int;
using CUstreamCaptureMode = cudaStreamCaptureMode;

enum : unsigned {
  cudaHostAllocPortable = 1,
  cudaHostAllocMapped = 2,
  cudaHostAllocWriteCombined = 4,
  cudaHostRegisterPortable = 1,
  cudaHostRegisterMapped = 2,
  cudaHostRegisterIoMemory = 4,
  cudaHostRegisterReadOnly = 8,
  cudaMemAttachGlobal = 1,
  cudaMemAttachHost = 2,
  cudaMemAttachSingle = 4,
  cudaEventBlockingSync = 1,
  cudaEventRecordExternal = 1,
  cudaEventWaitExternal = 1,
  cudaDeviceScheduleSpin = 1,
  cudaDeviceScheduleYield = 2,
  cudaIpcMemLazyEnablePeerAccess = 1,
};
constexpr auto cudaDevAttrWarpSize = static_cast<cudaDeviceAttr>(10);
enum cudaDeviceP2PAttr { cudaDevP2PAttrAccessSupported = 2 };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone };
enum cudaGraphNodeType { cudaGraphNodeTypeKernel };
enum cudaMemAllocationType { cudaMemAllocationTypeInvalid, cudaMemAllocationTypePinned };
enum cudaMemAllocationHandleType { cudaMemHandleTypePosixFileDescriptor = 1 };
enum cudaMemLocationType {
  cudaMemLocationTypeDevice = 1,
  cudaMemLocationTypeHost,
  cudaMemLocationTypeHostNuma,
  cudaMemLocationTypeHostNumaCurrent,
};
enum cudaMemAccessFlags { cudaMemAccessFlagsProtNone };
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 };
constexpr auto CU_POINTER_ATTRIBUTE_CONTEXT = static_cast<CUpointer_attribute>(1);
constexpr auto CU_POINTER_ATTRIBUTE_DEVICE_POINTER = static_cast<CUpointer_attribute>(3);
constexpr auto CU_POINTER_ATTRIBUTE_HOST_POINTER = static_cast<CUpointer_attribute>(4);
constexpr auto CU_POINTER_ATTRIBUTE_BUFFER_ID = static_cast<CUpointer_attribute>(7);
constexpr auto CU_POINTER_ATTRIBUTE_IS_MANAGED = static_cast<CUpointer_attribute>(8);
constexpr auto CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = static_cast<CUpointer_attribute>(9);
constexpr auto CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = static_cast<CUpointer_attribute>(11);
constexpr auto CU_POINTER_ATTRIBUTE_MAPPED = static_cast<CUpointer_attribute>(13);

struct cudaMemLocation {
  cudaMemLocationType type;
  int id;
};
struct cudaMemAccessDesc {
  cudaMemLocation location;
  cudaMemAccessFlags flags;
};
struct cudaMemPoolProps {
  cudaMemAllocationType allocType;
  cudaMemAllocationHandleType handleTypes;
  cudaMemLocation location;
  void *win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
};
struct cudaExtent {
  size_t width, height, depth;
};
struct cudaPos {
  size_t x, y, z;
};
struct cudaPitchedPtr {
  void *ptr;
  size_t pitch, xsize, ysize;
};
struct cudaMemcpy3DParms {
  cudaArray_t srcArray;
  cudaPos srcPos;
  cudaPitchedPtr srcPtr;
  cudaArray_t dstArray;
  cudaPos dstPos;
  cudaPitchedPtr dstPtr;
  cudaExtent extent;
  cudaMemcpyKind kind;
};
struct cudaMemsetParams {
  void *dst;
  size_t pitch;
  unsigned value, elementSize;
  size_t width, height;
};
struct cudaHostNodeParams {
  cudaHostFn_t fn;
  void *userData;
};
struct cudaDeviceProp {
  char bytes[4096];
};
struct cudaGraphExecUpdateResultInfo {
  void *words[4];
};
struct cudaIpcMemHandle_t {
  char reserved[64];
};
using cudaIpcEventHandle_t = cudaIpcMemHandle_t;

#define cuDeviceGetUuid cuDeviceGetUuid_v2
#define cuDevicePrimaryCtxSetFlags cuDevicePrimaryCtxSetFlags_v2
#define cuGetProcAddress cuGetProcAddress_v2
#define cuMemAllocPitch cuMemAllocPitch_v2
#define cuMemGetInfo cuMemGetInfo_v2
#define cuMemHostRegister cuMemHostRegister_v2
#define cuMemHostGetDevicePointer cuMemHostGetDevicePointer_v2
#define cuMemGetAddressRange cuMemGetAddressRange_v2
#define cuStreamBeginCapture cuStreamBeginCapture_v2

extern "C" {
cudaError_t cudaMallocManaged(void **, size_t, unsigned);
cudaError_t cudaMallocPitch(void **, size_t *, size_t, size_t);
cudaError_t cudaMalloc3D(cudaPitchedPtr *, cudaExtent);
cudaError_t cudaMemGetInfo(size_t *, size_t *);
cudaError_t cudaHostGetDevicePointer(void **, void *, unsigned);
cudaError_t cudaMemcpyPeer(void *, int, const void *, int, size_t);
cudaError_t cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, cudaMemcpyKind);
cudaError_t cudaMemcpyFromSymbol(void *, const void *, size_t, size_t, cudaMemcpyKind);
cudaError_t cudaGetSymbolAddress(void **, const void *);
cudaError_t cudaMemcpy2DAsync(void *, size_t, const void *, size_t, size_t, size_t, cudaMemcpyKind,
                              cudaStream_t);
cudaError_t cudaMemset2DAsync(void *, size_t, int, size_t, size_t, cudaStream_t);
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms *);
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms *, cudaStream_t);
cudaError_t cudaMemset3D(cudaPitchedPtr, int, cudaExtent);
cudaError_t cudaMemset3DAsync(cudaPitchedPtr, int, cudaExtent, cudaStream_t);
cudaError_t cudaMemcpy3DBatchAsync(size_t, void *, unsigned long long, cudaStream_t);
cudaError_t cudaFreeArray(cudaArray_t);
cudaError_t cudaMallocArray(cudaArray_t *, const void *, size_t, size_t, unsigned);
cudaError_t cudaMemcpy2DToArray(cudaArray_t, size_t, size_t, const void *, size_t, size_t, size_t,
                                cudaMemcpyKind);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *, unsigned, int);
cudaError_t cudaStreamGetPriority(cudaStream_t, int *);
cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned *);
cudaError_t cudaStreamGetDevice(cudaStream_t, int *);
cudaError_t cudaStreamGetId(cudaStream_t, unsigned long long *);
cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void *, size_t, unsigned);
cudaError_t cudaStreamCopyAttributes(cudaStream_t, cudaStream_t);
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *);
cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t, unsigned);
cudaError_t cudaInitDevice(int, unsigned, unsigned);
cudaError_t cudaSetDeviceFlags(unsigned);
cudaError_t cudaGetDeviceFlags(unsigned *);
cudaError_t cudaSetValidDevices(int *, int);
cudaError_t cudaChooseDevice(int *, const cudaDeviceProp *);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *, int);
cudaError_t cudaDeviceGetLimit(size_t *, cudaLimit);
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t);
cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache *);
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache);
cudaError_t cudaDeviceGetP2PAttribute(int *, cudaDeviceP2PAttr, int, int);
cudaError_t cudaDeviceGetStreamPriorityRange(int *, int *);
cudaError_t cudaDeviceGetPCIBusId(char *, int, int);
cudaError_t cudaDeviceGetByPCIBusId(int *, const char *);
cudaError_t cudaRuntimeGetVersion(int *);
const char *cudaGetErrorString(cudaError_t);
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *, void *);
cudaError_t cudaIpcOpenMemHandle(void **, cudaIpcMemHandle_t, unsigned);
cudaError_t cudaIpcCloseMemHandle(void *);
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *, cudaEvent_t);
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *, int);
cudaError_t cudaDeviceSetMemPool(int, cudaMemPool_t);
cudaError_t cudaMemPoolCreate(cudaMemPool_t *, const cudaMemPoolProps *);
cudaError_t cudaMemPoolDestroy(cudaMemPool_t);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *);
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc *, size_t);
cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags *, cudaMemPool_t, cudaMemLocation *);
cudaError_t cudaMemPoolExportPointer(void *, void *);
cudaError_t cudaMemPoolExportToShareableHandle(void *, cudaMemPool_t, cudaMemAllocationHandleType,
                                               unsigned);
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphClone(cudaGraph_t *, cudaGraph_t);
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t, cudaGraph_t, cudaGraphExecUpdateResultInfo *);
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *, cudaGraph_t, const cudaGraphNode_t *, size_t);
cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *, cudaGraph_t, const cudaGraphNode_t *, size_t,
                                 const cudaHostNodeParams *);
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *, cudaGraph_t, const cudaGraphNode_t *,
                                     size_t, void *, const void *, size_t, cudaMemcpyKind);
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *, cudaGraph_t, const cudaGraphNode_t *, size_t,
                                   const cudaMemsetParams *);
cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *, cudaGraph_t, const cudaGraphNode_t *,
                                        size_t, cudaEvent_t);
cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t *, cudaGraph_t, const cudaGraphNode_t *,
                                      size_t, cudaEvent_t);
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *, cudaGraph_t, const cudaGraphNode_t *,
                                       size_t, cudaGraph_t);
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t *, size_t *);
cudaError_t cudaGraphGetRootNodes(cudaGraph_t, cudaGraphNode_t *, size_t *);
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t, cudaGraphNodeType *);
cudaError_t cudaGraphDestroyNode(cudaGraphNode_t);

CUresult cuDeviceGetAttribute(int *, CUdevice_attribute, CUdevice);
CUresult cuDeviceGetUuid(void *, CUdevice);
CUresult cuDeviceCanAccessPeer(int *, CUdevice, CUdevice);
CUresult cuDevicePrimaryCtxSetFlags(CUdevice, unsigned);
CUresult cuCtxGetFlags(unsigned *);
CUresult cuCtxGetApiVersion(CUcontext, unsigned *);
CUresult cuCtxGetLimit(size_t *, CUlimit);
CUresult cuCtxSetLimit(CUlimit, size_t);
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned);
CUresult cuCtxDisablePeerAccess(CUcontext);
CUresult cuMemHostAlloc(void **, size_t, unsigned);
CUresult cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);
CUresult cuMemAllocPitch(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
CUresult cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);
CUresult cuMemFreeAsync(CUdeviceptr, CUstream);
CUresult cuMemGetInfo(size_t *, size_t *);
CUresult cuMemHostRegister(void *, size_t, unsigned);
CUresult cuMemHostUnregister(void *);
CUresult cuMemHostGetDevicePointer(CUdeviceptr *, void *, unsigned);
CUresult cuMemHostGetFlags(unsigned *, void *);
CUresult cuMemGetAddressRange(CUdeviceptr *, size_t *, CUdeviceptr);
CUresult cuMemcpy(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemcpyAsync(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemsetD16Async(CUdeviceptr, unsigned short, size_t, CUstream);
CUresult cuMemsetD32Async(CUdeviceptr, unsigned, size_t, CUstream);
CUresult cuMemPoolDestroy(cudaMemPool_t);
CUresult cuStreamGetCtx(CUstream, CUcontext *);
CUresult cuStreamGetFlags(CUstream, unsigned *);
CUresult cuStreamGetPriority(CUstream, int *);
CUresult cuStreamBeginCapture(CUstream, CUstreamCaptureMode);
CUresult cuStreamEndCapture(CUstream, cudaGraph_t *);
CUresult cuStreamIsCapturing(CUstream, cudaStreamCaptureStatus *);
CUresult cuLaunchHostFunc(CUstream, cudaHostFn_t, void *);
CUresult cuEventQuery(CUevent);
CUresult cuEventElapsedTime(float *, CUevent, CUevent);
CUresult cuGraphDestroy(cudaGraph_t);
CUresult cuGraphLaunch(cudaGraphExec_t, CUstream);
}
