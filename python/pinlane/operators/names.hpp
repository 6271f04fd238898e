// What findings call an operation: the operator with the types and shapes of its tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <string>

namespace pinlane {

inline const char* dtype_name(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float: return "float32";
    case c10::ScalarType::Double: return "float64";
    case c10::ScalarType::Half: return "float16";
    case c10::ScalarType::BFloat16: return "bfloat16";
    case c10::ScalarType::Long: return "int64";
    case c10::ScalarType::Int: return "int32";
    case c10::ScalarType::Short: return "int16";
    case c10::ScalarType::Char: return "int8";
    case c10::ScalarType::Byte: return "uint8";
    case c10::ScalarType::Bool: return "bool";
    case c10::ScalarType::ComplexFloat: return "complex64";
    case c10::ScalarType::ComplexDouble: return "complex128";
    default: return c10::toString(type);
  }
}

inline void append_tensor(std::string& text, const at::Tensor& t) {
  text += dtype_name(t.scalar_type());
  text += '[';
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (d) text += ", ";
    text += std::to_string(t.size(d));
  }
  text += ']';
}

/// Names at most this many tensors.
constexpr int MOST_NAMED = 4;

class Name {
 public:
  explicit Name(const std::string& name) : text(name) {}

  void add(const c10::IValue& value) {
    if (value.isTensor()) {
      add(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& t : value.toTensorList().vec()) add(t);
    } else if (value.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& t : value.toOptionalTensorList().vec())
        if (t) add(*t);
    }
  }

  void add(const at::Tensor& t) {
    const bool is_number = t.defined() && t.unsafeGetTensorImpl()->is_wrapped_number();
    if (!t.defined() || is_number || ++tensors > MOST_NAMED) return;
    text += tensors == 1 ? " " : ", ";
    append_tensor(text, t);
  }

  const std::string& finish() {
    if (tensors > MOST_NAMED) text += " and " + std::to_string(tensors - MOST_NAMED) + " more";
    return text;
  }

 private:
  std::string text;
  int tensors = 0;
};

}  // namespace pinlane
