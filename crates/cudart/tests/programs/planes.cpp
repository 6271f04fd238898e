// Copies and fills of planes, volumes and batches by the driver, and what a GPU answers to wrong
// arguments (an H100, driver 580.159.04).
#include "driver.h"

#include <cstring>
#include <vector>

namespace {

constexpr size_t BYTES = 1 << 16;
CUdeviceptr device;
char* host;
CUstream stream;

CUdeviceptr address(const void* ptr) { return reinterpret_cast<CUdeviceptr>(ptr); }

// What device memory has, when everything is done.
std::vector<char> contents() {
  std::vector<char> all(BYTES);
  FINE(cuCtxSynchronize());
  FINE(cuMemcpyDtoH(all.data(), device, BYTES));
  return all;
}

void clear() {
  FINE(cuMemsetD8(device, 0, BYTES));
  FINE(cuCtxSynchronize());
}

CUDA_MEMCPY2D plane() {
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host;
  copy.srcPitch = 100;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = device;
  copy.dstPitch = 200;
  copy.WidthInBytes = 50;
  copy.Height = 4;
  return copy;
}

CUDA_MEMCPY3D volume() {
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host;
  copy.srcPitch = 100;
  copy.srcHeight = 8;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = device;
  copy.dstPitch = 200;
  copy.dstHeight = 8;
  copy.WidthInBytes = 50;
  copy.Height = 4;
  copy.Depth = 2;
  return copy;
}

CUDA_MEMCPY3D_PEER between_contexts(const CUDA_MEMCPY3D& copy) {
  CUDA_MEMCPY3D_PEER peer = {};
  static_assert(sizeof peer == sizeof copy, "one has contexts where the other has reserved words");
  std::memcpy(&peer, &copy, sizeof copy);
  FINE(cuCtxGetCurrent(&peer.srcContext));
  peer.dstContext = peer.srcContext;
  return peer;
}

CUDA_MEMCPY3D_BATCH_OP batch() {
  CUDA_MEMCPY3D_BATCH_OP copy = {};
  copy.src.type = copy.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  copy.src.op.ptr = {address(host), 100, 8, {}};
  copy.dst.op.ptr = {device, 200, 8, {}};
  copy.extent = {50, 4, 2};
  copy.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  return copy;
}

// Each byte of the extent, and no other, at pitches of 200 and 8 lines.
void has_landed(size_t x, size_t y, size_t width, size_t height, size_t depth) {
  const std::vector<char> all = contents();
  for (size_t at = 0; at < BYTES; ++at) {
    const size_t column = at % 200, line = at / 200 % 8, layer = at / 1600;
    const bool inside = x <= column && column < x + width && y <= line && line < y + height &&
                        layer < depth;
    const size_t from = (layer * 8 + (line - y)) * 100 + (column - x);
    EXPECT(all[at] == (inside ? host[from] : 0));
  }
  clear();
}

void the_bytes_land_where_they_should() {
  CUDA_MEMCPY2D flat = plane();
  flat.dstXInBytes = 30;
  flat.dstY = 2;
  FINE(cuMemcpy2D(&flat));
  has_landed(30, 2, 50, 4, 1);
  FINE(cuMemcpy2DUnaligned(&flat));
  has_landed(30, 2, 50, 4, 1);
  FINE(cuMemcpy2DAsync(&flat, stream));
  has_landed(30, 2, 50, 4, 1);
  CUDA_MEMCPY3D deep = volume();
  deep.dstXInBytes = 7;
  FINE(cuMemcpy3D(&deep));
  has_landed(7, 0, 50, 4, 2);
  FINE(cuMemcpy3DAsync(&deep, stream));
  has_landed(7, 0, 50, 4, 2);
  CUDA_MEMCPY3D_PEER peer = between_contexts(deep);
  FINE(cuMemcpy3DPeer(&peer));
  has_landed(7, 0, 50, 4, 2);
  peer.srcContext = nullptr;
  FINE(cuMemcpy3DPeerAsync(&peer, stream));
  has_landed(7, 0, 50, 4, 2);
  CUDA_MEMCPY3D_BATCH_OP one = batch();
  FINE(cuMemcpy3DBatchAsync(1, &one, 0, stream));
  has_landed(0, 0, 50, 4, 2);
  // Lines and planes of length 0 lie one after the other.
  one.dst.op.ptr = {device, 0, 0, {}};
  FINE(cuMemcpy3DBatchAsync(1, &one, 0, stream));
  const std::vector<char> tight = contents();
  EXPECT(tight[50] == host[100] && tight[200] == host[800] && tight[399] != 0 && tight[400] == 0);
  clear();
  // And back, in stream order.
  char* back = nullptr;
  FINE(cuMemAllocHost(reinterpret_cast<void**>(&back), 400));
  CUDA_MEMCPY2D down = {};
  down.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  down.srcDevice = device;
  down.srcPitch = 200;
  down.dstMemoryType = CU_MEMORYTYPE_HOST;
  down.dstHost = back;
  down.WidthInBytes = 100;
  down.Height = 4;
  FINE(cuMemsetD2D8Async(device, 200, 1, 100, 4, stream));
  FINE(cuMemsetD2D16Async(device, 200, 0x202, 10, 2, stream));
  FINE(cuMemsetD2D32Async(device + 200, 200, 0x3030303, 2, 1, stream));
  FINE(cuMemcpy2DAsync(&down, stream));
  FINE(cuStreamSynchronize(stream));
  EXPECT(back[0] == 2 && back[19] == 2 && back[20] == 1 && back[99] == 1);
  EXPECT(back[100] == 3 && back[107] == 3 && back[108] == 2 && back[120] == 1 && back[399] == 1);
  FINE(cuMemFreeHost(back));
  clear();
}

void batches() {
  CUdeviceptr dsts[] = {device, device + 1000}, srcs[] = {address(host), address(host) + 1000};
  size_t sizes[] = {100, 100}, firsts[] = {0, 1};
  CUmemcpyAttributes how[2] = {};
  how[0].srcAccessOrder = how[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  const auto copy = [&](size_t count, size_t kinds, CUstream on) {
    return cuMemcpyBatchAsync(dsts, srcs, sizes, count, how, firsts, kinds, on);
  };
  FINE(copy(2, 1, stream));
  const std::vector<char> all = contents();
  EXPECT(all[99] == host[99] && all[100] == 0 && all[1099] == host[1099] && all[1100] == 0);
  FINE(copy(2, 2, cudaStreamPerThread));
  FINE(cuCtxSynchronize());
  GIVES(CUDA_ERROR_INVALID_VALUE, copy(0, 1, stream));
  GIVES(CUDA_ERROR_INVALID_VALUE, copy(2, 0, stream));
  GIVES(CUDA_ERROR_INVALID_VALUE, copy(2, 3, stream));
  GIVES(CUDA_ERROR_INVALID_VALUE, copy(2, 1, nullptr));
  GIVES(CUDA_ERROR_INVALID_VALUE,
        cuMemcpyBatchAsync(dsts, srcs, sizes, 2, nullptr, firsts, 1, stream));
  GIVES(CUDA_ERROR_INVALID_VALUE,
        cuMemcpyBatchAsync(dsts, srcs, sizes, 2, how, nullptr, 1, stream));
  GIVES(CUDA_ERROR_INVALID_VALUE,
        cuMemcpyBatchAsync(nullptr, srcs, sizes, 2, how, firsts, 1, stream));
  CUDA_MEMCPY3D_BATCH_OP one = batch();
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(0, &one, 0, stream));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(1, nullptr, 0, stream));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(1, &one, 1, stream));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(1, &one, 0, nullptr));
  const auto gives = [&](int code, void (*change)(CUDA_MEMCPY3D_BATCH_OP&)) {
    CUDA_MEMCPY3D_BATCH_OP changed = batch();
    change(changed);
    GIVES(code, cuMemcpy3DBatchAsync(1, &changed, 0, stream));
  };
  using Op = CUDA_MEMCPY3D_BATCH_OP;
  gives(0, [](Op& op) { op.src.op.ptr.rowLength = op.src.op.ptr.layerHeight = 0; });
  gives(0, [](Op& op) { op.flags = 1; });
  gives(1, [](Op& op) { op.src.op.ptr.rowLength = 49; });
  gives(1, [](Op& op) { op.src.op.ptr.layerHeight = 3; });
  gives(1, [](Op& op) { op.extent.width = 0; });
  gives(1, [](Op& op) { op.extent.depth = 0; });
  gives(1, [](Op& op) { op.srcAccessOrder = static_cast<CUmemcpySrcAccessOrder>(0); });
  gives(1, [](Op& op) { op.src.type = static_cast<CUmemcpy3DOperandType>(0); });
  gives(1, [](Op& op) { op.flags = 4; });
  clear();
}

void wrong_planes() {
  const auto gives = [](int code, void (*change)(CUDA_MEMCPY2D&)) {
    CUDA_MEMCPY2D copy = plane();
    change(copy);
    GIVES(code, cuMemcpy2D(&copy));
    GIVES(code, cuMemcpy2DUnaligned(&copy));
    GIVES(code, cuMemcpy2DAsync(&copy, stream));
  };
  using Copy = CUDA_MEMCPY2D;
  gives(0, [](Copy& copy) { copy.srcPitch = copy.dstPitch = 0; });
  gives(0, [](Copy& copy) { copy.srcPitch = copy.dstPitch = 0, copy.Height = 1; });
  gives(0, [](Copy& copy) { copy.dstPitch = size_t(1) << 40, copy.Height = 1; });
  gives(0, [](Copy& copy) { copy.WidthInBytes = 0, copy.srcHost = nullptr; });
  gives(0, [](Copy& copy) { copy.Height = 0; });
  gives(0, [](Copy& copy) {
    copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED, copy.srcDevice = address(host);
  });
  gives(1, [](Copy& copy) { copy.srcPitch = 49; });
  gives(1, [](Copy& copy) { copy.dstPitch = 49; });
  gives(1, [](Copy& copy) { copy.srcXInBytes = 51; });
  gives(1, [](Copy& copy) { copy.dstXInBytes = 170; });
  gives(1, [](Copy& copy) { copy.srcHost = nullptr; });
  gives(1, [](Copy& copy) { copy.dstDevice = 0; });
  gives(1, [](Copy& copy) { copy.srcMemoryType = static_cast<CUmemorytype>(0); });
  gives(1, [](Copy& copy) { copy.srcMemoryType = static_cast<CUmemorytype>(5); });
  gives(1, [](Copy& copy) { copy.srcMemoryType = CU_MEMORYTYPE_ARRAY; });
  gives(1, [](Copy& copy) {
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE, copy.srcDevice = address(host);
  });
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(nullptr));
}

void wrong_volumes() {
  const auto gives = [](int code, void (*change)(CUDA_MEMCPY3D&)) {
    CUDA_MEMCPY3D copy = volume();
    change(copy);
    GIVES(code, cuMemcpy3D(&copy));
    GIVES(code, cuMemcpy3DAsync(&copy, stream));
    const CUDA_MEMCPY3D_PEER peer = between_contexts(copy);
    GIVES(code, cuMemcpy3DPeer(&peer));
  };
  using Copy = CUDA_MEMCPY3D;
  gives(0, [](Copy& copy) { copy.srcPitch = copy.srcHeight = 0; });
  gives(0, [](Copy& copy) { copy.srcHeight = copy.dstHeight = 0, copy.Depth = 1; });
  gives(0, [](Copy& copy) { copy.srcLOD = 1; });
  gives(0, [](Copy& copy) { copy.Depth = 0; });
  gives(1, [](Copy& copy) { copy.srcPitch = 49; });
  gives(1, [](Copy& copy) { copy.srcHeight = 3; });
  gives(1, [](Copy& copy) { copy.srcY = 5; });
  gives(1, [](Copy& copy) { copy.srcXInBytes = 60; });
  gives(1, [](Copy& copy) { copy.srcHost = nullptr; });
  gives(1, [](Copy& copy) { copy.dstDevice = 0; });
  gives(1, [](Copy& copy) { copy.dstMemoryType = CU_MEMORYTYPE_ARRAY; });
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D(nullptr));
}

void wrong_fills() {
  FINE(cuMemsetD2D8(device, 49, 1, 50, 1));
  FINE(cuMemsetD2D8(device, 0, 1, 50, 1));
  FINE(cuMemsetD2D8(0, 100, 1, 0, 4));
  FINE(cuMemsetD2D8(device, 100, 1, 50, 0));
  FINE(cuMemsetD2D16(device, 101, 1, 20, 1));
  FINE(cuMemsetD2D32(device, 80, 1, 20, 4));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8(device, 49, 1, 50, 4));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8(0, 100, 1, 50, 4));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8(address(host), 100, 1, 50, 4));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8Async(device, 49, 1, 50, 4, stream));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D16(device + 1, 100, 1, 20, 4));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D16(device, 101, 1, 20, 4));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D32(device + 2, 100, 1, 20, 4));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D32(device, 102, 1, 20, 4));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D32(device, 76, 1, 20, 4));
}

}  // namespace

int main() {
  CUcontext primary;
  FINE(cuInit(0));
  FINE(cuDevicePrimaryCtxRetain(&primary, 0));
  FINE(cuCtxSetCurrent(primary));
  FINE(cuMemAlloc(&device, BYTES));
  FINE(cuStreamCreate(&stream, 0));
  std::vector<char> source(BYTES);
  host = source.data();
  for (size_t at = 0; at < BYTES; ++at) host[at] = static_cast<char>(1 + at % 101);
  clear();
  the_bytes_land_where_they_should();
  batches();
  wrong_planes();
  wrong_volumes();
  wrong_fills();
  FINE(cuCtxSynchronize());
#ifndef WITH_TOOLKIT
  GIVES(CUDA_ERROR_NOT_SUPPORTED, cuGLInit());
  GIVES(CUDA_ERROR_NOT_SUPPORTED, cuEGLStreamConsumerConnect(nullptr, nullptr));
  GIVES(CUDA_ERROR_NOT_SUPPORTED, cuVDPAUGetDevice(nullptr, 0, nullptr));
#endif
  std::puts("all is right");
}
