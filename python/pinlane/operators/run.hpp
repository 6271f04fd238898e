// What the dispatcher calls for an operator on a device's tensors.
#pragma once

#include "launch.hpp"
#include "refused.hpp"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/nonzero.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

namespace pinlane {

/// Whether an operator moves its index to the device.
inline bool moves_index(const Operator& op, size_t argument) {
  return argument > 0 && (op.named == Named::ByTensors || op.name == "index_put" ||
                          op.name == "_unsafe_index_put");
}

/// Whether an operator reads this argument on the host.
inline bool is_for_host(const Operator& op, size_t argument) {
  return is_one_of(op.name, {"_pack_padded_sequence"}) && argument == 1;
}

/// The device of the first tensor that is on one; without a tensor, of the argument `device`.
inline c10::Device device_of(const std::vector<IValue>& arguments) {
  std::optional<c10::Device> found, named;
  for (const IValue& v : arguments) {
    each(v, [&](const at::Tensor& t) {
      if (!found && t.is_cuda()) found = t.device();
    });
    if (v.isDevice() && v.toDevice().is_cuda()) named = v.toDevice();
  }
  if (!found) found = named;
  if (!found || !found->has_index()) return {c10::kCUDA, c10::cuda::current_device()};
  return *found;
}

inline void check_tensor(const Operator& op, size_t argument, const at::Tensor& t,
                         c10::Device device) {
  if (t.layout() != c10::kStrided || t.is_quantized() || t.is_nested())
    refuse("aten::" + op.name + " of a tensor that is sparse, quantized or nested");
  if (t.is_cuda() ? t.device() == device : t.dim() == 0 && !op.writes[argument]) return;
  TORCH_CHECK(is_for_host(op, argument),
              "Expected all tensors to be on the same device, but found at least two devices, ",
              device, " and ", t.device(), "!");
}

/// Replaces masks by the indices of what they select, as the operators themselves do.
inline IValue without_masks(const IValue& indices) {
  std::vector<std::optional<at::Tensor>> list;
  bool any = false;
  for (const auto& index : indices.toOptionalTensorVector()) {
    if (!index || !index->defined() || !is_mask(*index)) {
      list.push_back(index);
      continue;
    }
    any = true;
    const auto selected = at::nonzero(*index);
    for (int64_t d = 0; d < index->dim(); ++d) list.emplace_back(selected.select(1, d));
  }
  return any ? IValue(c10::List<std::optional<at::Tensor>>(list)) : indices;
}

/// Whether storing this value by one mask is a masked_fill_, which needs no indices.
inline bool is_masked_fill(const std::vector<IValue>& arguments) {
  const auto& value = arguments[2].toTensor();
  if (value.numel() != 1 || !value.is_cpu()) return false;
  int masks = 0, others = 0;
  for (const auto& index : arguments[1].toOptionalTensorVector()) {
    if (!index || !index->defined()) continue;
    ++(is_mask(*index) ? masks : others);
  }
  return masks == 1 && others == 0;
}

inline std::vector<IValue> prepare(const Operator& op, const Stack& stack, c10::Device device) {
  std::vector<IValue> arguments(stack.end() - static_cast<std::ptrdiff_t>(op.arguments()),
                                stack.end());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!has_tensors(arguments[i])) continue;
    if (arguments[i].isOptionalTensorList() && moves_index(op, i)) {
      arguments[i] =
          mapped(arguments[i], [&](const at::Tensor& t) { return t.to(device); });
    }
    each(arguments[i], [&](const at::Tensor& t) {
      check_tensor(op, i, t, device);
      if (op.writes[i] && op.named == Named::No) at::assert_no_internal_overlap(t);
    });
  }
  return arguments;
}

inline void finish(const Operator& op, Stack& stack, std::vector<IValue> returns) {
  torch::jit::drop(stack, op.arguments());
  for (IValue& v : returns) stack.push_back(std::move(v));
}

inline void resize(const at::Tensor& t, const Like& like) {
  t.resize_(like.sizes);
  if (!like.fits(t)) t.as_strided_(like.sizes, like.strides);
}

inline void enqueue(Operator& op, Stack& stack, const std::vector<IValue>& arguments,
                    c10::Device device) {
  const auto planned = plan(op, arguments);
  for (const auto& [argument, like] : planned->resized) {
    if (!op.is_out[argument]) refuse("aten::" + op.name + " that changes the size of its argument");
    resize(arguments[argument].toTensor(), like);
  }
  std::vector<at::Tensor> results;
  std::vector<IValue> returns;
  for (size_t r = 0; r < op.aliases.size(); ++r) {
    if (!op.is_fresh(r)) {
      returns.push_back(arguments[op.aliases[r]]);
      continue;
    }
    std::vector<at::Tensor> made;
    for (const Like& like : planned->results[r]) made.push_back(like.on(device));
    results.insert(results.end(), made.begin(), made.end());
    returns.push_back(planned->is_list[r] ? IValue(made) : IValue(made.at(0)));
  }
  launch_computation(op, arguments, results, device.index());
  finish(op, stack, std::move(returns));
}

/// What an operator computed whose results the host waits for.
struct Outcome {
  Stack returned;
};

struct Inquiry : Work {
  Operator* op;
  std::vector<IValue> arguments;
  std::shared_ptr<Outcome> outcome;

  void run() override {
    outcome->returned = arguments;
    call_on_host(*op, outcome->returned);
  }
};

struct Delivery : Work {
  at::Tensor from, to;
  void run() override { to.copy_(from); }
};

inline at::Tensor deliver(const Operator& op, const at::Tensor& from, const at::Tensor& to) {
  if (!from.defined() || from.numel() == 0) return to;
  auto work = std::make_unique<Delivery>();
  Name name(op.name);
  name.add(to);
  work->name = name.finish();
  work->from = from;
  work->to = on_host(to);
  Uses uses;
  add_tensor(uses, to, true);
  launch(std::move(work), uses, to.device().index());
  return to;
}

/// Computes, waits for the stream, and then stores the results by further launches.
inline void synchronously(Operator& op, Stack& stack, const std::vector<IValue>& arguments,
                          c10::Device device) {
  auto work = std::make_unique<Inquiry>();
  auto outcome = std::make_shared<Outcome>();
  work->op = &op;
  work->outcome = outcome;
  Uses uses;
  Name name(op.name);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!op.writes[i]) name.add(arguments[i]);
    work->arguments.push_back(moved(arguments[i], c10::kCPU, [&](const at::Tensor& t) {
      if (!t.is_cuda()) return by_value(t);
      if (op.writes[i]) return at::empty({0}, at::TensorOptions(t.scalar_type()));
      add_tensor(uses, t, false);
      return on_host(t);
    }));
  }
  work->name = name.finish();
  launch(std::move(work), uses, device.index());
  c10::cuda::stream_synchronize(c10::cuda::getCurrentCUDAStream(device.index()));
  Failures::get().raise();
  std::vector<IValue> returns;
  for (size_t r = 0; r < op.aliases.size(); ++r) {
    const IValue& v = outcome->returned.at(r);
    if (!op.is_fresh(r)) {
      const at::Tensor& to = arguments[op.aliases[r]].toTensor();
      to.resize_(v.toTensor().sizes());
      returns.emplace_back(deliver(op, v.toTensor(), to));
    } else {
      returns.push_back(mapped(v, [&](const at::Tensor& t) {
        return deliver(op, t, Like(t).on(device));
      }));
    }
  }
  finish(op, stack, std::move(returns));
}

inline void run(Operator& op, Stack& stack) {
  Failures::get().raise();
  const std::vector<IValue> given(stack.end() - static_cast<std::ptrdiff_t>(op.arguments()),
                                  stack.end());
  const c10::Device device = device_of(given);
  c10::cuda::CUDAGuard guard(device);
  auto arguments = prepare(op, stack, device);
  const bool by_masks =
      arguments.size() > 1 && arguments[1].isOptionalTensorList() && moves_index(op, 1) &&
      !(arguments.size() > 2 && arguments[2].isTensor() && is_masked_fill(arguments));
  if (by_masks) arguments[1] = without_masks(arguments[1]);
  const bool knows_size = op.name == "repeat_interleave" && !arguments.at(1).isNone();
  if (op.synchronous && !knows_size) return synchronously(op, stack, arguments, device);
  enqueue(op, stack, arguments, device);
}

class Boxed : public c10::OperatorKernel {
 public:
  explicit Boxed(std::shared_ptr<Operator> op) : op(std::move(op)) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    run(*op, *stack);
  }

 private:
  std::shared_ptr<Operator> op;
};

}  // namespace pinlane
