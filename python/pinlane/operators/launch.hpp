// One launch: what an operator computes at its turn in the stream, and the uses that it declares.
#pragma once

#include "failures.hpp"
#include "names.hpp"
#include "named.hpp"
#include "random.hpp"
#include "shapes.hpp"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

namespace pinlane {

struct Work {
  virtual ~Work() = default;
  virtual void run() = 0;
  std::string name;
};

inline void run_work(void* data) {
  auto* work = static_cast<Work*>(data);
  try {
    Plain plain;
    work->run();
  } catch (const std::exception& error) {
    const std::string text = error.what();
    Failures::get().add(work->name + ": " + text.substr(0, text.find("\nException raised from")));
  }
}

inline void drop_work(void* data) { delete static_cast<Work*>(data); }

inline std::atomic<long> launches{0};

/// Enqueues work in the device's current stream.
inline void launch(std::unique_ptr<Work> work, const Uses& uses, c10::DeviceIndex device) {
  const std::string name = work->name;
  const auto stream = c10::cuda::getCurrentCUDAStream(device).stream();
  Work* data = work.release();
  // The drop-in drops what it does not take, too.
  const int code = drop_in().launch(name.c_str(), stream, uses.data(), uses.size(), run_work, data,
                                    drop_work);
  C10_CUDA_CHECK(static_cast<cudaError_t>(code));
  launches.fetch_add(1, std::memory_order_relaxed);
  Failures::get().raise();
}

/// An operator with arguments and results of the host that have the device's bytes.
struct Computation : Work {
  Operator* op;
  std::vector<IValue> arguments;
  std::vector<at::Tensor> results;  // undefined where the operator has none
  Random random;
  const void* first = nullptr;  // the device's address of the first argument, if an index names it

  void run() override {
    if (first) {
      const Uses uses = named_uses(*op, arguments, static_cast<const char*>(first));
      if (!uses.empty()) drop_in().used(uses.data(), uses.size());
    }
    Stack stack(arguments);
    if (op->generator >= 0) set_generator(*op, stack, random.for_host());
    if (!run_in_place(stack)) {
      call_on_host(*op, stack);
      store(stack);
    }
  }

 private:
  /// Lets the operator write to the results itself, if it can.
  bool run_in_place(const Stack& stack) {
    if (!op->out || !op->out_works || op->own) return false;
    if (small_types(*op, arguments) & ~op->native) return false;
    if (results.size() != op->aliases.size()) return false;
    for (const at::Tensor& t : results)
      if (!t.defined()) return false;
    Stack with_results(stack);
    for (const at::Tensor& t : results) with_results.emplace_back(t);
    std::vector<Like> planned;
    for (const at::Tensor& t : results) planned.emplace_back(t);
    bool fits = true;
    try {
      op->out->callBoxed(&with_results);
      for (size_t i = 0; i < results.size(); ++i) {
        const at::Tensor& t = results[i];
        fits = fits && planned[i].fits(t) && !t.is_conj() && !t.is_neg();
      }
    } catch (const std::exception&) {
      fits = false;
    }
    if (fits) return true;
    // It may have changed the sizes, or have left the numbers to conjugate. The other form says
    // what is wrong, if anything is.
    op->out_works = false;
    for (size_t i = 0; i < results.size(); ++i) results[i] = planned[i].at(results[i].data_ptr());
    return false;
  }

  void store(const Stack& returned) {
    size_t next = 0;
    for (size_t r = 0; r < op->aliases.size(); ++r) {
      if (!op->is_fresh(r)) continue;
      if (returned[r].isTensorList()) {
        for (const at::Tensor& t : returned[r].toTensorVector()) store(t, results.at(next++));
      } else {
        store(returned[r].toTensor(), results.at(next++));
      }
    }
  }

  void store(const at::Tensor& from, const at::Tensor& to) const {
    if (!to.defined()) return;
    if (!from.defined() || (from.numel() == 0 && op->leaves_statistics)) {
      TORCH_CHECK(to.numel() == 0 || op->leaves_statistics,
                  "it has no result where one is expected");
      return;
    }
    TORCH_CHECK(from.sizes() == to.sizes(), "its result has sizes ", from.sizes(), ", expected ",
                to.sizes());
    to.copy_(from);
  }
};

/// What an operator uses of an argument: scatter only as much of its source as it has indices.
inline at::Tensor used_part(const Operator& op, const std::vector<IValue>& arguments, size_t i,
                            const at::Tensor& t) {
  if (!op.scatters || i != 3 || !arguments[2].isTensor()) return t;
  const auto sizes = arguments[2].toTensor().sizes();
  if (static_cast<int64_t>(sizes.size()) != t.dim()) return t;
  auto part = t;
  for (int64_t d = 0; d < t.dim(); ++d)
    part = part.narrow(d, 0, std::min(sizes[d], t.size(d)));
  return part;
}

/// Launches an operator. `arguments` are the device's, with sizes that fit.
inline void launch_computation(Operator& op, const std::vector<IValue>& arguments,
                               const std::vector<at::Tensor>& results, c10::DeviceIndex device) {
  auto work = std::make_unique<Computation>();
  work->op = &op;
  Uses uses;
  Name name(op.name);
  bool writes = false;
  if (op.named != Named::No && arguments[0].toTensor().numel() > 0)
    work->first = arguments[0].toTensor().const_data_ptr();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool later = i == 0 && work->first;
    name.add(arguments[i]);
    work->arguments.push_back(moved(arguments[i], c10::kCPU, [&](const at::Tensor& t) {
      if (!t.is_cuda()) return by_value(t);
      writes |= op.writes[i] && t.numel() > 0;
      if (later)
        add_later(uses, t, op.writes[i]);
      else
        add_tensor(uses, used_part(op, arguments, i, t), op.writes[i]);
      return on_host(t);
    }));
  }
  for (const at::Tensor& t : results) {
    if (!t.defined()) {
      work->results.emplace_back();
      continue;
    }
    writes |= t.numel() > 0;
    add_tensor(uses, t, true);
    work->results.push_back(on_host(t));
  }
  if (op.generator >= 0) {
    std::optional<at::Generator> given;
    const auto at = static_cast<size_t>(op.generator);
    if (at < arguments.size() && arguments[at].isGenerator()) given = arguments[at].toGenerator();
    work->random = Random(given, device);
    work->random.add_uses(uses);
  }
  const bool only_asserts = results.empty() && !op.writes_any;
  if (!writes && !only_asserts) return;  // all that it would write to is empty
  work->name = name.finish();
  launch(std::move(work), uses, device);
}

}  // namespace pinlane
