// Recordings in C++ of the work of a device and of the host's threads, as files.

#include "check.hpp"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>

namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool is_in(const char* part, const std::string& text) {
  return text.find(part) != std::string::npos;
}

void written(rig& rig, const std::string& path) {
  const pinlane::recording recording(rig.device);
  recording.add(rig.other);
  auto host = rig.pool.alloc_zeroed<float>(1000);
  auto gpu = rig.device.alloc<float>(1000);
  rig.stream.upload(host, gpu);
  rig.stream.download(gpu, host);
  EXPECT(thrown_by([&] { (void)recording.spans(); }) == PINLANE_STATUS_INVALID_VALUE);
  EXPECT(thrown_by([&] { recording.write_svg(path); }) == PINLANE_STATUS_INVALID_VALUE);
  recording.stop();
  recording.stop();
  EXPECT(recording.spans() >= 4 && recording.missing() == 0);
  recording.write_json(path);
  EXPECT(is_in("\"traceEvents\"", text_of(path)) && is_in("\"bytes\":4000", text_of(path)));
  recording.write_svg(path);
  EXPECT(text_of(path).rfind("<svg", 0) == 0);
  std::remove(path.c_str());
}

void refusals(rig& rig) {
  {
    const pinlane::recording first(rig.device);
    EXPECT(thrown_by([&] { const pinlane::recording second(rig.device); }) ==
           PINLANE_STATUS_INVALID_VALUE);
  } // destroyed while it was running
  const pinlane::recording again(rig.device);
  again.stop();
  EXPECT(thrown_by([&] { again.add(rig.device); }) == PINLANE_STATUS_INVALID_VALUE);
  EXPECT(thrown_by([&] { again.write_json("/pinlane/no/such/file"); }) == PINLANE_STATUS_IO);
  EXPECT(thrown_by([] { pinlane::recording().stop(); }) == PINLANE_STATUS_INVALID_HANDLE);
  EXPECT(thrown_by([] { const pinlane::recording none{pinlane::device()}; }) ==
         PINLANE_STATUS_INVALID_HANDLE);
}

} // namespace

int main() try {
  rig rig;
  written(rig, "/tmp/pinlane-recording-cpp-" + std::to_string(getpid()));
  refusals(rig);
  return verdict("recordings in C++");
} catch (const pinlane::error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
