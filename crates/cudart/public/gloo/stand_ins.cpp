// The kernels that gloo's tests launch and whose results they check, on the host.
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace {

template <class T>
T* pointer(void* argument) {
  return *static_cast<T**>(argument);
}

} // namespace

// gloo::_Kernel_float_cudaSum(float* to, const float* from, int count)
extern "C" {
const std::size_t pinlane_kernel__ZN4gloo21_Kernel_float_cudaSumEPfPKfi_sizes[] = {8, 8, 4, 0};
void pinlane_kernel__ZN4gloo21_Kernel_float_cudaSumEPfPKfi(dim3, dim3, void** args, std::size_t) {
  auto* to = pointer<float>(args[0]);
  const auto* from = pointer<const float>(args[1]);
  const int count = *static_cast<int*>(args[2]);
  for (int at = 0; at < count; ++at) {
    to[at] += from[at];
  }
}

// gloo::_Kernel_half_cudaSum(half* to, const half* from, int count)
const std::size_t pinlane_kernel__ZN4gloo20_Kernel_half_cudaSumEP6__halfPKS0_i_sizes[] = {8, 8, 4,
                                                                                         0};
void pinlane_kernel__ZN4gloo20_Kernel_half_cudaSumEP6__halfPKS0_i(dim3, dim3, void** args,
                                                                  std::size_t) {
  auto* to = pointer<__half>(args[0]);
  const auto* from = pointer<const __half>(args[1]);
  const int count = *static_cast<int*>(args[2]);
  for (int at = 0; at < count; ++at) {
    to[at] = __float2half(__half2float(to[at]) + __half2float(from[at]));
  }
}
}
