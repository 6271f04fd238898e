// Uses files that are compiled in different modes: each keeps its own mode, whichever was linked
// first, and the resources of one pool are equal in all of them.

#include "modes.hpp"

#include <cstdio>
#include <stdexcept>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

namespace {

std::vector<part>& parts() {
  static std::vector<part> all;
  return all;
}

int failures = 0;

void expect(bool condition, const char* what, const part& part) {
  if (!condition) {
    ++failures;
    std::fprintf(stderr, "%s: %s\n", part.name, what);
  }
}

/// Whether a part without exceptions ends the process.
bool aborts(const part& part) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    static_cast<void>(std::freopen("/dev/null", "w", stderr));
    static_cast<void>(part.fail());
    _exit(0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

void compare_resources(pinlane_pool* pool, pinlane_pool* another) {
  std::vector<std::pmr::memory_resource*> same, different{std::pmr::new_delete_resource()};
  for (const part& part : parts()) {
    same.push_back(part.resource(pool));
    different.push_back(part.resource(another));
    different.push_back(part.other(pool));
  }
  for (const part& part : parts()) {
    for (const auto* one : same) {
      for (const auto* other : same) {
        expect(part.are_equal(*one, *other), "resources of one pool are not equal", part);
      }
      for (const auto* other : different) {
        expect(!part.are_equal(*one, *other), "unlike resources are equal", part);
        expect(!part.are_equal(*other, *one), "unlike resources are equal", part);
      }
    }
  }
}

} // namespace

bool add(const part& part) {
  parts().push_back(part);
  return true;
}

void acts::act() const {
  if (throws) {
    throw thrown();
  }
}

pinlane::pinned_buffer<float> alloc_elsewhere(const pinlane::pinned_pool& pool) {
  return pool.alloc<float>(3);
}

int main() {
  for (const part& part : parts()) {
    if (!part.has_exceptions) {
      expect(aborts(part), "a call that failed did not abort", part);
    }
  }
  for (const part& part : parts()) {
    part.succeed();
    if (part.has_exceptions) {
      expect(part.fail(), "an exception is not what it is", part);
    }
  }
  const auto devices = pinlane::device::emulated(1);
  const pinlane::pinned_pool pool(devices.front()), another(devices.front());
  compare_resources(pool.get(), another.get());
  std::printf("%zu parts, %d failed\n", parts().size(), failures);
  return failures == 0 ? 0 : 1;
}
