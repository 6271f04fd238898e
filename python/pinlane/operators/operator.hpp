// What is known of an operator before any call of it: from its schema, and from lists by name.
#pragma once

#include "tensors.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace pinlane {

using torch::jit::Stack;

/// Computes an operator on the host that PyTorch computes only on a GPU. Takes the arguments off
/// the stack, and puts the results on it.
using Own = void (*)(Stack&);

/// Operators that use those elements of their first argument that an index names.
enum class Named { No, AlongDimension, ByElement, Flat, ByTensors };

struct Plan;

struct Operator {
  c10::OperatorHandle handle;
  std::string name;            // without the namespace and the overload
  std::vector<bool> writes;    // each argument
  std::vector<bool> is_out;    // each argument: whether it is only written to
  std::vector<int> aliases;    // each return: the argument that it is, or -1
  std::vector<bool> is_dtype;  // each argument
  int generator = -1;  // an argument, or one after the last that `own` takes
  bool writes_any = false;
  bool scatters = false;
  /// A GPU's results have sizes, and no values, where the host's are empty: statistics that a batch
  /// norm does not compute when it evaluates.
  bool leaves_statistics = false;
  /// The sizes of results differ between a GPU and the host. The host's fit the host's backward.
  bool has_sizes_of_host = false;
  bool synchronous = false;  // the host must have the results
  Own own = nullptr;
  Named named = Named::No;
  std::optional<c10::OperatorHandle> out;  // writes to given results
  std::atomic<uint64_t> in_float{0};  // small types of which the host has no (fast) kernel, as bits
  std::atomic<uint64_t> native{0};    // and those of which it has one
  std::atomic<bool> out_works{true};

  std::mutex lock;
  std::unordered_map<std::string, std::shared_ptr<const Plan>> plans;

  explicit Operator(const c10::OperatorHandle& op);

  size_t arguments() const { return writes.size(); }
  bool is_fresh(size_t result) const { return aliases[result] < 0; }
};

inline uint64_t bit(c10::ScalarType type) { return uint64_t{1} << static_cast<int>(type); }

inline bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* n) { return name == n; });
}

/// Whether an argument is written to, although the schema does not say so.
inline bool is_running_statistic(const std::string& op, const std::string& argument) {
  return is_one_of(op, {"native_batch_norm", "cudnn_batch_norm", "batch_norm_update_stats",
                        "batch_norm_gather_stats", "batch_norm_gather_stats_with_counts"}) &&
         (argument == "running_mean" || argument == "running_var");
}

inline Named named_by(const c10::FunctionSchema& schema, const std::string& name) {
  const auto& first = schema.arguments()[0];
  const bool in_place = first.alias_info() && first.alias_info()->isWrite();
  if (in_place) {
    if (is_one_of(name, {"index_add_", "index_copy_", "index_fill_", "index_reduce_",
                         "embedding_renorm_"}))
      return Named::AlongDimension;
    if (is_one_of(name, {"scatter_", "scatter_add_", "scatter_reduce_"})) return Named::ByElement;
    if (name == "put_") return Named::Flat;
    if (is_one_of(name, {"index_put_", "_index_put_impl_"})) return Named::ByTensors;
    return Named::No;
  }
  if (is_one_of(name, {"index_select", "embedding", "_embedding_bag",
                       "_embedding_bag_forward_only"}))
    return Named::AlongDimension;
  if (name == "gather") return Named::ByElement;
  if (name == "take") return Named::Flat;
  if (is_one_of(name, {"index", "_unsafe_index"})) return Named::ByTensors;
  return Named::No;
}

/// Whether the results depend on data, so that a GPU's host waits for them as well.
inline bool is_synchronous(const c10::FunctionSchema& schema, const std::string& name) {
  for (const auto& result : schema.returns())
    if (result.type()->str().rfind("Tensor", 0) != 0) return true;
  return is_one_of(name, {"nonzero", "masked_select", "_unique", "_unique2", "unique_dim",
                          "unique_consecutive", "unique_dim_consecutive", "bincount",
                          "repeat_interleave"});
}

inline bool is_write(const c10::AliasInfo* alias) { return alias && alias->isWrite(); }

inline Operator::Operator(const c10::OperatorHandle& op) : handle(op) {
  const auto& schema = op.schema();
  name = schema.name().substr(schema.name().find("::") + 2);
  for (const auto& argument : schema.arguments()) {
    if (argument.type()->str() == "Generator?") generator = static_cast<int>(writes.size());
    is_dtype.push_back(argument.real_type()->str().rfind("ScalarType", 0) == 0);
    writes.push_back(is_write(argument.alias_info()) ||
                     is_running_statistic(name, argument.name()));
    is_out.push_back(writes.back() && argument.kwarg_only());
    writes_any = writes_any || writes.back();
  }
  for (const auto& result : schema.returns()) {
    int alias = -1;
    if (is_write(result.alias_info())) {
      for (size_t a = 0; a < writes.size() && alias < 0; ++a) {
        const auto* of = schema.arguments()[a].alias_info();
        if (is_write(of) && *of == *result.alias_info()) alias = static_cast<int>(a);
      }
    }
    aliases.push_back(alias);
  }
  scatters = name.rfind("scatter", 0) == 0;
  leaves_statistics = name.find("batch_norm") != std::string::npos;
  has_sizes_of_host = is_one_of(name, {"_embedding_bag", "_embedding_bag_forward_only"});
  synchronous = is_synchronous(schema, name);
  if (is_one_of(name, {"mm", "bmm", "addmm", "addmm_", "baddbmm", "baddbmm_", "convolution",
                       "convolution_backward"}))
    in_float = bit(c10::ScalarType::Half) | bit(c10::ScalarType::BFloat16);
  if (!schema.arguments().empty()) named = named_by(schema, name);
}

/// Whether `out` takes the arguments of `op`, and then a tensor for each result.
inline bool is_out_form(const c10::FunctionSchema& op, const c10::FunctionSchema& out) {
  const auto &few = op.arguments(), &many = out.arguments();
  if (many.size() != few.size() + op.returns().size()) return false;
  for (size_t i = 0; i < few.size(); ++i) {
    if (is_write(few[i].alias_info()) || few[i].name() != many[i].name() ||
        few[i].type()->str() != many[i].type()->str())
      return false;
  }
  for (size_t i = few.size(); i < many.size(); ++i)
    if (!is_write(many[i].alias_info()) || many[i].type()->str() != "Tensor") return false;
  for (const auto& result : op.returns())
    if (result.type()->str() != "Tensor") return false;
  return !op.returns().empty();
}

/// Finds the forms that write to given results, of operators with a kernel for the host.
class OutForms {
 public:
  OutForms() {
    auto& all = c10::Dispatcher::singleton();
    for (const auto& name : all.getAllOpNames()) {
      auto op = all.findSchema(name);
      if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
      const auto& arguments = op->schema().arguments();
      if (!arguments.empty() && is_write(arguments.back().alias_info()))
        forms[name.name].push_back(*op);
    }
  }

  std::optional<c10::OperatorHandle> find(const c10::OperatorHandle& op) const {
    auto found = forms.find(op.schema().name());
    if (found == forms.end()) return {};
    for (const auto& out : found->second)
      if (is_out_form(op.schema(), out.schema())) return out;
    return {};
  }

 private:
  std::unordered_map<std::string, std::vector<c10::OperatorHandle>> forms;
};

}  // namespace pinlane
