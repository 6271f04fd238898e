// Work that failed at its turn, as a device-side assert stops a GPU. The next operator raises it.
#pragma once

#include "dropin.hpp"

#include <atomic>
#include <c10/util/Exception.h>
#include <mutex>
#include <string>

namespace pinlane {

class Failures {
 public:
  static Failures& get() {
    static auto* failures = new Failures;
    return *failures;
  }

  void add(const std::string& text) {
    std::lock_guard<std::mutex> guard(lock);
    if (first.empty()) first = text;
    any.store(true, std::memory_order_release);
  }

  /// Raises the first failure so far, and reports it as a finding.
  void raise() {
    if (!any.load(std::memory_order_acquire)) return;
    const std::string text = take();
    if (text.empty()) return;
    drop_in().unsupported(text.c_str());
    TORCH_CHECK(false, "pinlane: an operator failed on the device: ", text);
  }

  std::string take() {
    std::lock_guard<std::mutex> guard(lock);
    any.store(false, std::memory_order_release);
    return std::exchange(first, {});
  }

 private:
  std::mutex lock;
  std::atomic<bool> any{false};
  std::string first;
};

}  // namespace pinlane
