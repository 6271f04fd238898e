// Which results an operator has, before it runs: from its Meta kernel, or from the host's kernel on
// zeros. What was found out is kept by the arguments' types and shapes.
#pragma once

#include "host.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DefaultDtype.h>

namespace pinlane {

struct Plan {
  /// For each return that is no argument: its tensors.
  std::vector<std::vector<Like>> results;
  std::vector<bool> is_list;
  /// Arguments that get other sizes, as `out` may.
  std::vector<std::pair<size_t, Like>> resized;
};

/// Arguments as bytes: equal bytes have equal plans.
class Key {
 public:
  std::string bytes;

  bool add(const IValue& v) {
    if (v.isTensor()) {
      add(v.toTensor());
    } else if (v.isNone()) {
      put('n');
    } else if (v.isInt()) {
      put('i'), put(v.toInt());
    } else if (v.isDouble()) {
      put('d'), put(v.toDouble());
    } else if (v.isBool()) {
      put('b'), put(v.toBool());
    } else if (v.isComplexDouble()) {
      put('c'), put(v.toComplexDouble());
    } else if (v.isString()) {
      put('s'), put(v.toStringRef().size()), bytes += v.toStringRef();
    } else if (v.isDevice()) {
      put('D'), put(v.toDevice().type()), put(v.toDevice().index());
    } else if (v.isGenerator()) {
      put('G');
    } else if (v.isOptionalTensorList() || v.isTensorList()) {
      const auto& list = v.toListRef();
      put('L'), put(list.size());
      for (const IValue& item : list) add(item);
    } else if (v.isList()) {
      const auto& list = v.toListRef();
      put('l'), put(list.size());
      for (const IValue& item : list)
        if (!add(item)) return false;
    } else {
      return false;
    }
    return true;
  }

 private:
  template <class T>
  void put(const T& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  void add(const at::Tensor& t) {
    if (!t.defined()) return put('u');
    put('t'), put(t.scalar_type()), put(t.device().type()), put(t.layout());
    put(static_cast<char>(t.is_conj() + 2 * t.is_neg() +
                          4 * t.unsafeGetTensorImpl()->is_wrapped_number()));
    put(t.dim());
    for (int64_t d = 0; d < t.dim(); ++d) put(t.size(d)), put(t.stride(d));
  }
};

/// What the arguments become: `before` were given, `after` has sizes as the operator left them.
inline void find_resized(const Operator& op, const std::vector<IValue>& before, const Stack& after,
                         Plan& plan) {
  for (size_t i = 0; i < before.size(); ++i) {
    if (!op.writes[i] || !before[i].isTensor() || !before[i].toTensor().defined()) continue;
    Like now(after[i].toTensor());
    if (!now.fits(before[i].toTensor())) {
      now.dtype = before[i].toTensor().scalar_type();
      plan.resized.emplace_back(i, std::move(now));
    }
  }
}

inline void find_results(const Operator& op, const Stack& returned, Plan& plan) {
  for (size_t r = 0; r < op.aliases.size(); ++r) {
    plan.results.emplace_back();
    const IValue& v = returned.at(r);
    plan.is_list.push_back(v.isTensorList());
    if (!op.is_fresh(r)) continue;
    if (v.isTensorList()) {
      for (const at::Tensor& t : v.toTensorVector()) plan.results.back().emplace_back(t);
    } else {
      plan.results.back().emplace_back(v.toTensor());
    }
  }
}

inline Plan plan_by_meta(const Operator& op, const std::vector<IValue>& arguments) {
  Stack stack;
  for (const IValue& v : arguments) {
    stack.push_back(moved(v, c10::kMeta, [](const at::Tensor& t) {
      return t.is_cuda() || t.dim() > 0 ? elsewhere(t, c10::kMeta) : t;
    }));
  }
  const Stack given(stack);
  at::AutoDispatchBelowADInplaceOrView below;
  op.handle.callBoxed(&stack);
  Plan plan;
  find_resized(op, arguments, given, plan);
  find_results(op, stack, plan);
  return plan;
}

inline Plan plan_by_zeros(Operator& op, const std::vector<IValue>& arguments) {
  Plain plain;
  Stack stack;
  for (const IValue& v : arguments) {
    stack.push_back(moved(v, c10::kCPU, [](const at::Tensor& t) {
      return t.is_cuda() ? elsewhere(t, c10::kCPU).zero_() : t.detach().clone();
    }));
  }
  const uint64_t small = small_types(op, stack);
  if (op.generator >= 0) set_generator(op, stack, at::detail::createCPUGenerator(0));
  const Stack given(stack);
  call_on_host(op, stack);
  Plan plan;
  find_resized(op, arguments, given, plan);
  find_results(op, stack, plan);
  if (small && (op.in_float & small)) {
    for (auto& likes : plan.results)
      for (Like& like : likes)
        for (auto type : {c10::kHalf, c10::kBFloat16, c10::kComplexHalf})
          if ((small & bit(type)) && like.dtype == wide(type)) like.dtype = type;
  }
  return plan;
}

/// The Meta kernels of some operators need data, or do not exist.
inline Plan new_plan(Operator& op, const std::vector<IValue>& arguments) {
  const bool by_meta = !op.has_sizes_of_host;
  if (by_meta && (!op.own || op.handle.hasKernelForDispatchKey(c10::DispatchKey::Meta))) {
    try {
      return plan_by_meta(op, arguments);
    } catch (const std::exception&) {
      // The host's kernel says what is wrong in a GPU's words, if anything is.
    }
  }
  return plan_by_zeros(op, arguments);
}

inline std::shared_ptr<const Plan> plan(Operator& op, const std::vector<IValue>& arguments) {
  Key key;
  bool known = true;
  for (const IValue& v : arguments) known = known && key.add(v);
  if (!known) return std::make_shared<const Plan>(new_plan(op, arguments));
  key.bytes += static_cast<char>(c10::get_default_dtype_as_scalartype());
  {
    std::lock_guard<std::mutex> guard(op.lock);
    auto found = op.plans.find(key.bytes);
    if (found != op.plans.end()) return found->second;
  }
  auto made = std::make_shared<const Plan>(new_plan(op, arguments));
  std::lock_guard<std::mutex> guard(op.lock);
  if (op.plans.size() >= 4096) op.plans.clear();
  return op.plans.emplace(std::move(key.bytes), made).first->second;
}

}  // namespace pinlane
