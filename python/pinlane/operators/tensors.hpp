// The same tensor elsewhere: on the host over the same bytes, on the meta device, as a copy.
#pragma once

#include "dropin.hpp"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <vector>

namespace pinlane {

using c10::IValue;

/// The type, sizes and strides of a tensor.
struct Like {
  bool defined = false;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::DimVector sizes, strides;

  Like() = default;
  explicit Like(const at::Tensor& t) : defined(t.defined()) {
    if (!defined) return;
    TORCH_CHECK_NOT_IMPLEMENTED(t.layout() == c10::kStrided && !t.is_quantized(),
                                "a result that is sparse, quantized or nested");
    dtype = t.scalar_type();
    sizes = t.sizes();
    strides = t.strides();
  }

  bool fits(const at::Tensor& t) const { return t.sizes() == sizes && t.strides() == strides; }

  /// The same tensor of the host, at an address.
  at::Tensor at(void* address) const {
    return at::from_blob(address, sizes, strides, at::TensorOptions(dtype).device(at::kCPU));
  }

  at::Tensor on(c10::Device device) const {
    if (!defined) return {};
    return at::empty_strided(sizes, strides, at::TensorOptions(dtype).device(device));
  }
};

inline void copy_bits(const at::Tensor& from, const at::Tensor& to) {
  if (from.is_conj()) to._set_conj(true);
  if (from.is_neg()) to._set_neg(true);
  if (from.unsafeGetTensorImpl()->is_wrapped_number())
    to.unsafeGetTensorImpl()->set_wrapped_number(true);
}

inline at::Tensor elsewhere(const at::Tensor& t, c10::DeviceType device) {
  auto made = at::empty_strided(t.sizes(), t.strides(),
                                at::TensorOptions(t.scalar_type()).device(device));
  copy_bits(t, made);
  return made;
}

/// A tensor of the host with the bytes of a device's. It owns nothing: what is freed stays freed.
inline at::Tensor on_host(const at::Tensor& t) {
  auto made = at::from_blob(drop_in().storage(t.const_data_ptr()), t.sizes(), t.strides(),
                            at::TensorOptions(t.scalar_type()).device(at::kCPU));
  copy_bits(t, made);
  return made;
}

/// A copy of a host's tensor, as a kernel gets its parameters.
inline at::Tensor by_value(const at::Tensor& t) {
  auto made = t.detach().clone();
  copy_bits(t, made);
  return made;
}

inline bool has_tensors(const IValue& v) {
  return v.isTensor() || v.isTensorList() || v.isOptionalTensorList();
}

/// Calls f with each defined tensor.
template <class F>
void each(const IValue& v, F f) {
  if (v.isTensor()) {
    if (v.toTensor().defined()) f(v.toTensor());
  } else if (v.isTensorList()) {
    for (const at::Tensor& t : v.toTensorVector())
      if (t.defined()) f(t);
  } else if (v.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& t : v.toOptionalTensorVector())
      if (t && t->defined()) f(*t);
  }
}

/// The same value with other tensors.
template <class F>
IValue mapped(const IValue& v, F f) {
  if (v.isTensor()) return v.toTensor().defined() ? IValue(f(v.toTensor())) : v;
  if (v.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : v.toTensorVector()) list.push_back(t.defined() ? f(t) : t);
    return list;
  }
  if (v.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& t : v.toOptionalTensorVector())
      list.push_back(t && t->defined() ? std::optional<at::Tensor>(f(*t)) : t);
    return list;
  }
  return v;
}

/// The same value for another device.
template <class F>
IValue moved(const IValue& v, c10::DeviceType device, F f) {
  if (v.isDevice()) return v.toDevice().is_cuda() ? IValue(c10::Device(device)) : v;
  if (v.isGenerator()) return IValue();
  return mapped(v, f);
}

}  // namespace pinlane
