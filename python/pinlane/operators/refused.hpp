// Operators that nothing computes without a GPU: they stop the program by their names.
#pragma once

#include "failures.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace pinlane {

inline const char* advice(const std::string& name) {
  auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has("attention")) return "Allow torch.nn.attention.SDPBackend.MATH.";
  if (has("cudnn")) return "Set torch.backends.cudnn.enabled = False.";
  if (has("symm_mem::")) return "Symmetric memory needs several GPUs.";
  if (has("quantize") || has("int4") || has("sparse"))
    return "Use a dense tensor of a floating-point type.";
  return "Replace it by other operators, or put the call under a condition.";
}

[[noreturn]] inline void refuse(const std::string& name) {
  drop_in().unsupported(name.c_str());
  TORCH_CHECK(false, "pinlane: ", name, " runs only on a GPU, and nothing stands in for it. ",
              advice(name));
}

/// Whether an operator makes a tensor that is sparse, quantized or nested.
inline bool makes_no_dense(const std::string& name) {
  for (const char* part : {"_to_sparse", "_make_per_", "quantize_per_", "_nested_from",
                           "_nested_tensor_from", "_sparse_"})
    if (name.rfind(part, 0) == 0) return true;
  return false;
}

/// Whether an operator on a sparse tensor computes: others only look at its parts.
inline bool computes_sparse(const std::string& name) {
  for (const char* part :
       {"_coalesce", "_sparse_", "_spsolve", "_to_dense", "_to_sparse", "add", "baddbmm", "bmm",
        "div", "floor_divide", "hspmm", "index_select", "mm", "mul", "mv", "sparse_mask",
        "sparse_sampled", "sspaddmm", "sub", "sum", "triangular_solve"})
    if (name.rfind(part, 0) == 0)
      return name != "_coalesced_" && name.rfind("_sparse_coo_tensor", 0) != 0;
  return false;
}

/// Whether an operator on a nested tensor has a kernel of its own: others work on its buffer.
inline bool computes_nested(const std::string& name) {
  for (const char* part : {"_native_multi_head", "_nested_from", "_nested_select_backward",
                           "_nested_tensor_softmax", "_scaled_dot_product", "_transform", "bmm",
                           "to_padded_tensor"})
    if (name.rfind(part, 0) == 0) return true;
  return false;
}

class Refusing : public c10::OperatorKernel {
 public:
  explicit Refusing(const char* of) : of(of) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
    refuse(toString(op.operator_name()) + of);
  }

 private:
  const char* of;
};

}  // namespace pinlane
