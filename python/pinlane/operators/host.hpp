// Calls of an operator's kernel for the host.
#pragma once

#include "operator.hpp"

#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

namespace pinlane {

struct Silent : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

/// The thread is as a new one while this lives: no modes of Python, no autograd, no autocast, no
/// warnings.
class Plain {
  Silent silent;
  c10::WarningUtils::WarningHandlerGuard warnings{&silent};
  c10::impl::ForceDispatchKeyGuard keys{
      c10::default_included_set,
      c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView};
  c10::AutoGradMode no_grad{false};
};

/// The type to compute in where the host has no kernel for a small one.
inline c10::ScalarType wide(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Half:
    case c10::ScalarType::BFloat16: return c10::ScalarType::Float;
    case c10::ScalarType::ComplexHalf: return c10::ScalarType::ComplexFloat;
    default: return type;
  }
}

/// The small types among the arguments.
inline uint64_t small_types(const Operator& op, const std::vector<IValue>& arguments) {
  uint64_t found = 0;
  auto note = [&](c10::ScalarType type) {
    if (wide(type) != type) found |= bit(type);
  };
  for (size_t i = 0; i < op.arguments(); ++i) {
    each(arguments[i], [&](const at::Tensor& t) { note(t.scalar_type()); });
    if (op.is_dtype[i] && arguments[i].isInt())
      note(static_cast<c10::ScalarType>(arguments[i].toInt()));
  }
  return found;
}

inline bool is_missing_kernel(const std::exception& error) {
  const std::string text = error.what();
  for (const char* type : {"'Half'", "'BFloat16'", "'ComplexHalf'", "Half", "BFloat16"})
    if (text.find(type) != std::string::npos) return true;
  return text.find("not implemented") != std::string::npos;
}

inline void set_generator(const Operator& op, Stack& stack, const at::Generator& generator) {
  if (op.generator == static_cast<int>(stack.size())) stack.emplace_back();
  stack.at(op.generator) = generator;
}

inline void call(const Operator& op, Stack& stack) {
  op.own ? op.own(stack) : op.handle.callBoxed(&stack);
}

/// Computes with small types in float32, and rounds what the operator writes to.
inline void call_in_float(const Operator& op, Stack& stack) {
  std::vector<std::pair<at::Tensor, at::Tensor>> written;
  for (size_t i = 0; i < op.arguments(); ++i) {
    if (op.is_dtype[i] && stack[i].isInt()) {
      stack[i] = static_cast<int64_t>(wide(static_cast<c10::ScalarType>(stack[i].toInt())));
      continue;
    }
    stack[i] = mapped(stack[i], [&](const at::Tensor& t) {
      if (wide(t.scalar_type()) == t.scalar_type()) return t;
      auto larger = t.to(wide(t.scalar_type()));
      if (op.writes[i]) written.emplace_back(t, larger);
      return larger;
    });
  }
  call(op, stack);
  for (auto& [small, larger] : written) small.copy_(larger);
}

/// Replaces the arguments on the stack by the results. Results of small types may come in float32.
inline void call_on_host(Operator& op, Stack& stack) {
  const uint64_t small = small_types(op, stack);
  if (!small) return call(op, stack);
  if (!(op.in_float.load(std::memory_order_relaxed) & small)) {
    Stack attempt(stack);
    try {
      call(op, attempt);
      stack = std::move(attempt);
      op.native.fetch_or(small, std::memory_order_relaxed);
      return;
    } catch (const std::exception& error) {
      if (!is_missing_kernel(error)) throw;
    }
  }
  call_in_float(op, stack);
  op.in_float.fetch_or(small, std::memory_order_relaxed);
}

}  // namespace pinlane
