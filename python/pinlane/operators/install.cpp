// PyTorch's CUDA operators on pinlane's emulated device: each becomes one launch in the current
// stream, whose work runs the same operator's kernel for the host on the device's memory. Memory,
// copies, streams and events stay PyTorch's own.
#include "copies.hpp"
#include "own.hpp"
#include "refused.hpp"

#include <torch/library.h>

namespace pinlane {
namespace {

/// Operators that move no data, or are calls of the CUDA runtime.
bool stays(const std::string& name) {
  return is_one_of(
      name, {"empty", "empty_strided", "as_strided", "as_strided_", "view", "_reshape_alias",
             "unfold", "set_", "resize_", "is_set_to", "record_stream", "is_pinned", "_pin_memory",
             "_efficientzerotensor", "view_as_real", "view_as_complex", "alias", "lift",
             "_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors",
             "_empty_affine_quantized", "_empty_per_channel_affine_quantized",
             "_local_scalar_dense", "copy_", "_foreach_copy_", "_fused_sdp_choice",
             "_use_cudnn_ctc_loss", "_use_miopen_ctc_loss", "_nested_view_from_buffer"});
}

/// Operators without a kernel for CUDA, whose parts have kernels that only a GPU runs.
const std::vector<c10::OperatorName> whole = {
    {"aten::convolution", ""}, {"aten::convolution_backward", ""}, {"aten::conj_physical_", ""}};

bool has_kernel_for_host(const c10::OperatorHandle& op) {
  for (auto key : {c10::DispatchKey::CPU, c10::DispatchKey::CompositeExplicitAutograd,
                   c10::DispatchKey::CompositeImplicitAutograd,
                   c10::DispatchKey::CompositeExplicitAutogradNonFunctional})
    if (op.hasKernelForDispatchKey(key)) return true;
  return false;
}

bool is_view(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns())
    if (result.alias_info() && !result.alias_info()->isWrite()) return true;
  return false;
}

bool is_of_pytorch(const std::string& name) {
  for (const char* space : {"aten::", "symm_mem::", "_native::", "quantized::", "quantization::",
                            "inductor_prims::"})
    if (name.rfind(space, 0) == 0) return true;
  return false;
}

int64_t fused_sdp_choice(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                         const std::optional<at::Tensor>&, double, bool, std::optional<double>,
                         bool) {
  return 0;  // the one that is made of other operators
}
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
                     std::optional<double> scale, bool enable_gqa) {
  std::optional<at::Tensor> added = mask;
  if (mask && mask->defined() && mask->scalar_type() == at::kBool) {
    added = at::zeros_like(*mask, query.scalar_type())
                .masked_fill_(mask->logical_not(), -std::numeric_limits<double>::infinity());
  }
  return std::get<0>(at::_scaled_dot_product_attention_math(
      query, key, value, added, dropout, is_causal, std::nullopt, scale, enable_gqa));
}
bool not_acceptable(const at::Tensor&) { return false; }
bool no_cudnn(const at::Tensor&, const at::Tensor&, at::IntArrayRef, at::IntArrayRef, int64_t) {
  return false;
}
bool no_cudnn_tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                     int64_t) {
  return false;
}
void foreach_copy(at::TensorList self, at::TensorList src, bool non_blocking) {
  static Operator op(c10::Dispatcher::singleton().findSchemaOrThrow("aten::_foreach_copy_", ""));
  foreach_copy_(op, self, src, non_blocking);
}

class Installation {
 public:
  int count = 0;
  std::string refused;

  void install() {
    Silent silent;  // PyTorch warns of kernels that replace others
    c10::WarningUtils::WarningHandlerGuard guard(&silent);
    auto& all = c10::Dispatcher::singleton();
    for (const auto& name : all.getAllOpNames()) {
      auto op = all.findSchema(name);
      if (op && is_of_pytorch(name.name) && op->hasKernelForDispatchKey(c10::DispatchKey::CUDA))
        replace(*op);
    }
    for (const auto& name : whole) stand_in(all.findSchemaOrThrow(name.name.c_str(), ""), nullptr);
    auto& aten = library("aten");
    aten.impl("copy_", torch::CppFunction::makeFromUnboxedFunction(&copy_));
    aten.impl("_foreach_copy_", torch::CppFunction::makeFromUnboxedFunction(&foreach_copy));
    aten.impl("_local_scalar_dense",
              torch::CppFunction::makeFromUnboxedFunction(&local_scalar_dense));
    aten.impl("_fused_sdp_choice", torch::CppFunction::makeFromUnboxedFunction(&fused_sdp_choice));
    aten.impl("cudnn_is_acceptable", torch::CppFunction::makeFromUnboxedFunction(&not_acceptable));
    aten.impl("scaled_dot_product_attention",
              torch::CppFunction::makeFromUnboxedFunction(&attention));
    refuse_all(c10::DispatchKey::SparseCUDA, sparse, computes_sparse, " of a sparse tensor");
    refuse_all(c10::DispatchKey::SparseCsrCUDA, sparse_rows, computes_sparse,
               " of a sparse tensor");
    refuse_all(c10::DispatchKey::NestedTensorCUDA, nested, computes_nested, " of a nested tensor");
    autograd.impl("scaled_dot_product_attention",
                  torch::CppFunction::makeFromUnboxedFunction(&attention));
    aten.impl("_use_cudnn_ctc_loss", torch::CppFunction::makeFromUnboxedFunction(&no_cudnn));
    aten.impl("_use_cudnn_ctc_loss.Tensor",
              torch::CppFunction::makeFromUnboxedFunction(&no_cudnn_tensor));
  }

 private:
  OutForms out_forms;
  std::unordered_map<std::string, std::unique_ptr<torch::Library>> libraries;
  torch::Library autograd{torch::Library::IMPL, "aten", c10::DispatchKey::AutogradCUDA, __FILE__,
                          __LINE__};
  torch::Library sparse{torch::Library::IMPL, "aten", c10::DispatchKey::SparseCUDA, __FILE__,
                        __LINE__};
  torch::Library sparse_rows{torch::Library::IMPL, "aten", c10::DispatchKey::SparseCsrCUDA,
                             __FILE__, __LINE__};
  torch::Library nested{torch::Library::IMPL, "aten", c10::DispatchKey::NestedTensorCUDA, __FILE__,
                        __LINE__};

  torch::Library& library(const std::string& space) {
    auto& found = libraries[space];
    if (!found) {
      found = std::make_unique<torch::Library>(torch::Library::IMPL, space, c10::DispatchKey::CUDA,
                                               __FILE__, __LINE__);
    }
    return *found;
  }

  void implement(const c10::OperatorHandle& op, torch::CppFunction function) {
    const auto full = toString(op.operator_name());
    const auto colons = full.find("::");
    library(full.substr(0, colons)).impl(full.substr(colons + 2).c_str(), std::move(function));
  }

  static void refuse_all(c10::DispatchKey key, torch::Library& library,
                         bool (*computes)(const std::string&), const char* of) {
    auto& all = c10::Dispatcher::singleton();
    for (const auto& name : all.getAllOpNames()) {
      auto op = all.findSchema(name);
      if (!op || name.name.rfind("aten::", 0) != 0 || !op->hasKernelForDispatchKey(key)) continue;
      if (computes(name.name.substr(6))) {
        library.impl(
            toString(name).substr(6).c_str(),
            torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Refusing>(of)));
      }
    }
  }

  void replace(const c10::OperatorHandle& op) {
    const auto& schema = op.schema();
    const auto name = schema.name().substr(schema.name().find("::") + 2);
    if (schema.name().rfind("aten::", 0) == 0) {
      if (stays(name) || is_view(schema)) return;
      const auto own = own::find(name, schema.overload_name());
      if (own || (has_kernel_for_host(op) && !makes_no_dense(name))) return stand_in(op, own);
    }
    implement(op, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Refusing>("")));
    refused += toString(op.operator_name()) + "\n";
  }

  void stand_in(const c10::OperatorHandle& handle, Own own) {
    auto op = std::make_shared<Operator>(handle);
    op->own = own;
    // The host's batch norm stores wrong results if it is given them and its input is strided.
    if (!op->leaves_statistics) op->out = out_forms.find(handle);
    if (op->name == "native_dropout") op->generator = static_cast<int>(op->arguments());
    implement(handle, torch::CppFunction::makeFromBoxedFunctor(
                          std::make_unique<Boxed>(std::move(op))));
    ++count;
  }
};

Installation& installation() {
  static auto* installed = new Installation;  // the dispatcher may call at the end of the process
  return *installed;
}

}  // namespace
}  // namespace pinlane

namespace {

/// A kernel that only takes time. Here it takes none, and keeps its place in its stream.
struct Sleep : pinlane::Work {
  void run() override {}
};

}  // namespace

/// torch.cuda._sleep. NULL, or what is wrong. The text stays valid until the thread's next call.
extern "C" const char* pinlane_operators_sleep() {
  thread_local std::string wrong;
  try {
    auto work = std::make_unique<Sleep>();
    work->name = "sleep";
    pinlane::launch(std::move(work), {}, c10::cuda::current_device());
    return nullptr;
  } catch (const c10::Error& error) {
    wrong = error.what_without_backtrace();
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  return wrong.c_str();
}

/// NULL, or what is wrong. The text stays valid until the next call.
extern "C" const char* pinlane_operators_install() {
  static std::string wrong;
  try {
    if (!pinlane::drop_in().missing.empty()) {
      wrong = "the CUDA runtime of this process lacks " + pinlane::drop_in().missing;
      return wrong.c_str();
    }
    pinlane::installation().install();
    return nullptr;
  } catch (const c10::Error& error) {
    wrong = error.what_without_backtrace();
    return wrong.c_str();
  } catch (const std::exception& error) {
    wrong = error.what();
    return wrong.c_str();
  }
}
extern "C" int pinlane_operators_count() { return pinlane::installation().count; }
extern "C" const char* pinlane_operators_refused() {
  return pinlane::installation().refused.c_str();
}
extern "C" long pinlane_operators_launches() { return pinlane::launches; }
extern "C" void pinlane_operators_unsupported(const char* what) {
  pinlane::drop_in().unsupported(what);
}
/// The first failure that no call has raised yet, or an empty text.
extern "C" const char* pinlane_operators_failure() {
  static std::string text;
  text = pinlane::Failures::get().take();
  return text.c_str();
}
