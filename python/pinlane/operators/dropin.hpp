// The functions of the drop-in CUDA runtime (crates/cudart/include/pinlane_dropin.h).
//
// They are looked up by name: this library has no drop-in to link with, and says what is missing.
#pragma once

#include <cstddef>
#include <dlfcn.h>
#include <string>

extern "C" {
typedef struct {
  const void* start;
  size_t bytes;
  size_t rows;
  size_t stride;
  int writes;
} pinlane_use;
}

namespace pinlane {

/// For `writes`: the work will tell which of these bytes it uses.
constexpr int LATER = 2;

struct DropIn {
  /// A launch whose work computes, and the uses that it declares.
  int (*launch)(const char*, void*, const pinlane_use*, size_t, void (*)(void*), void*,
                void (*)(void*));
  /// Where work finds the bytes of an address of device memory. Not inside work.
  void* (*storage)(const void*);
  /// Uses that work finds out.
  void (*used)(const pinlane_use*, size_t);
  std::string missing;

  DropIn() {
    find(launch, "pinlane_launch");
    find(storage, "pinlane_storage");
    find(used, "pinlane_used");
    find(label_call, "pinlane_label");
    find(unsupported_call, "pinlane_unsupported");
    if (!launch) missing = "pinlane_launch";
    if (!storage) missing = "pinlane_storage";
    if (!used) missing = "pinlane_used";
  }

  /// What findings call this thread's next calls; NULL: no more.
  void label(const char* text) const {
    if (label_call) label_call(text);
  }

  /// Reports that something ran that nothing stands in for.
  void unsupported(const char* what) const {
    if (unsupported_call) unsupported_call(what);
  }

 private:
  void (*label_call)(const char*);
  void (*unsupported_call)(const char*);

  template <class Function>
  static void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  }
};

inline const DropIn& drop_in() {
  static const DropIn found;
  return found;
}

}  // namespace pinlane
