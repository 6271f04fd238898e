// Copies are PyTorch's own, apart from those that are kernels on a GPU: they get a label.
#pragma once

#include "run.hpp"

#include <ATen/MemoryOverlap.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/PeerToPeerAccess.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/copy_native.h>

namespace pinlane {

/// What findings call the calls of this thread while it lives.
class Label {
 public:
  explicit Label(std::string text) : outer(std::exchange(current(), std::move(text))) {
    drop_in().label(current().c_str());
  }
  ~Label() {
    current() = std::move(outer);
    drop_in().label(current().empty() ? nullptr : current().c_str());
  }
  Label(const Label&) = delete;

 private:
  static std::string& current() {
    thread_local std::string text;
    return text;
  }
  std::string outer;
};

inline std::string copy_name(const at::Tensor& to, const at::Tensor& from) {
  std::string text = "copy_ ";
  append_tensor(text, from);
  text += " " + from.device().str() + " -> ";
  if (to.scalar_type() != from.scalar_type()) {
    text += dtype_name(to.scalar_type());
    text += ' ';
  }
  return text + to.device().str();
}

/// Whether PyTorch copies by one call of cudaMemcpyAsync.
inline bool is_plain(const at::Tensor& to, const at::Tensor& from) {
  return to.scalar_type() == from.scalar_type() && to.is_conj() == from.is_conj() &&
         to.is_neg() == from.is_neg() && to.sizes() == from.sizes() &&
         ((to.is_contiguous() && from.is_contiguous()) ||
          (to.strides() == from.strides() && to.is_non_overlapping_and_dense()));
}

/// Whether a kernel on one device can write to another. Otherwise PyTorch copies by way of
/// temporary tensors, whose copies come here again.
inline bool reaches(c10::Device from, c10::Device to) {
  return from == to || at::cuda::get_p2p_access(from.index(), to.index());
}

/// Copies by a launch on the source's device. The other device's stream is ordered around it.
inline void copy_by_launch(Operator& op, const at::Tensor& to, const at::Tensor& from) {
  const auto from_stream = c10::cuda::getCurrentCUDAStream(from.device().index());
  const auto to_stream = c10::cuda::getCurrentCUDAStream(to.device().index());
  c10::cuda::CUDAGuard guard(from.device());
  if (to.device() != from.device()) {
    guard.set_device(to.device());
    at::cuda::CUDAEvent ready;
    ready.record(to_stream);
    guard.set_device(from.device());
    ready.block(from_stream);
  }
  launch_computation(op, {IValue(to), IValue(from), IValue(false)}, {}, from.device().index());
  if (to.device() != from.device()) {
    at::cuda::CUDAEvent done;
    done.record(from_stream);
    guard.set_device(to.device());
    done.block(to_stream);
  }
}

inline at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  static Operator op(c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", ""));
  Failures::get().raise();
  if (!self.defined() || !src.defined() || self.layout() != c10::kStrided ||
      src.layout() != c10::kStrided)
    return at::native::copy_(self, src, non_blocking);
  if (self.is_cuda() && src.is_cuda() && self.numel() > 0 && !self.is_same(src) &&
      !is_plain(self, src) && reaches(src.device(), self.device())) {
    const auto expanded = src.expand(self.sizes());
    at::assert_no_internal_overlap(self);
    copy_by_launch(op, self, expanded);
    return self;
  }
  Label label(copy_name(self, src));
  at::native::copy_(self, src, non_blocking);
  return self;
}

inline at::Scalar local_scalar_dense(const at::Tensor& self) {
  c10::cuda::CUDAGuard guard(self.device());
  std::string text = "item ";
  append_tensor(text, self);
  Label label(text + " " + self.device().str() + " -> cpu");
  const auto value = at::native::_local_scalar_dense_cuda(self);
  Failures::get().raise();
  return value;
}

/// Copies of lists whose tensors are not all on one device are copies one by one.
inline void foreach_copy_(Operator& op, at::TensorList self, at::TensorList src,
                          bool non_blocking) {
  TORCH_CHECK(self.size() == src.size(), "Tensor lists must have the same number of tensors, got ",
              self.size(), " and ", src.size());
  bool together = !self.empty();
  for (size_t i = 0; i < self.size(); ++i) {
    together = together && self[i].device() == self[0].device() &&
               src[i].device() == self[0].device() && self[i].sizes() == src[i].sizes();
  }
  if (together && self[0].is_cuda()) {
    c10::cuda::CUDAGuard guard(self[0].device());
    return launch_computation(op, {IValue(self), IValue(src), IValue(non_blocking)}, {},
                              self[0].device().index());
  }
  for (size_t i = 0; i < self.size(); ++i) self[i].copy_(src[i], non_blocking);
}

}  // namespace pinlane
