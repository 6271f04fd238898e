// Adversarial programs that use the whole C interface: a few bytes decide which calls a program
// makes, with right and wrong arguments, on several threads, in callbacks, while calls fail and
// devices are lost.
//
//   fuzz PATH ...                  the programs in these files, and in the files of these folders
//   fuzz --random CALLS [SEED]     random programs until so many calls are made, from that seed on
//   fuzz --seed SEED [FILE]        one of them, with every call printed; FILE gets its bytes
//   fuzz --calm ...                so that nothing fails in them, and no memory may leak
//
// It aborts, and prints the program, if
//
// * a call returns a status without a name, or PANIC, or a message that does not name the call;
// * a wrong argument is accepted, or right ones are refused as wrong;
// * a call that fails writes to its outputs, or one that succeeds writes beside them;
// * bytes differ from a plain model, where the model knows them;
// * the emulated device finds a misuse of CUDA;
// * at the end something cannot be freed, or is left on the machine.
//
// With clang, -fsanitize=fuzzer drives it: then it has no main of its own (PINLANE_LIBFUZZER).
// corpus/ has small programs that clang's fuzzer has found, which together cover much of the code.
// scripts/fuzz runs all of this for a long time, with the address sanitizer.

#include "program.hpp"

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <unistd.h>

namespace {

bool calm = false;

/// What the process is doing, for the message when it dies.
std::atomic<std::uint64_t> running_seed{0};
std::array<char, 512> running_file{};

void say_which_program() {
  if (running_file[0] != '\0') {
    static_cast<void>(!write(2, "in the program ", 15));
    static_cast<void>(!write(2, running_file.data(), std::strlen(running_file.data())));
  } else {
    std::array<char, 24> digits{};
    std::size_t at = digits.size();
    std::uint64_t rest = running_seed;
    do {
      digits[--at] = static_cast<char>('0' + rest % 10);
      rest /= 10;
    } while (rest > 0);
    const char* const again = calm ? "run this program again: fuzz --calm --seed "
                                   : "run this program again: fuzz --seed ";
    static_cast<void>(!write(2, again, std::strlen(again)));
    static_cast<void>(!write(2, digits.data() + at, digits.size() - at));
  }
  static_cast<void>(!write(2, "\n", 1));
}

/// A file that programs read. It is removed at the end of the process.
class scratch_file {
public:
  scratch_file() {
    std::array<char, 64> name{"/tmp/pinlane-fuzz-XXXXXX"};
    const int file = mkstemp(name.data());
    std::vector<std::uint8_t> bytes;
    for (std::size_t at = 0; at < file_bytes; ++at) {
      bytes.push_back(byte_of_file(at));
    }
    const bool written =
        file >= 0 && write(file, bytes.data(), bytes.size()) == std::ptrdiff_t(bytes.size());
    require(written, "no temporary file can be written");
    close(file);
    file_path = name.data();
  }
  scratch_file(const scratch_file&) = delete;
  ~scratch_file() { unlink(file_path.c_str()); }
};

void run(const std::uint8_t* data, std::size_t size) {
  static const scratch_file file;
  program(data, size, calm).run();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  run(data, size);
  return 0;
}

/// The leak sanitizer calls it: memory that a lost device may still use stays allocated on purpose.
extern "C" int __lsan_is_turned_off() { return calm ? 0 : 1; }

#ifndef PINLANE_LIBFUZZER

// Of the address sanitizer, if the program is built with it.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*)());

namespace {

extern "C" void died(int signal) {
  say_which_program();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// The bytes of random program number `seed` (SplitMix64).
std::vector<std::uint8_t> bytes_of(std::uint64_t seed) {
  std::uint64_t state = seed * 0x2545f4914f6cdd1d;
  const auto next = [&] {
    std::uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  };
  std::vector<std::uint8_t> bytes(16 + next() % 2000);
  for (std::uint8_t& each : bytes) {
    each = static_cast<std::uint8_t>(next() >> 56);
  }
  return bytes;
}

void run_seed(std::uint64_t seed) {
  running_seed = seed;
  alarm(60); // a program that hangs dies
  const std::vector<std::uint8_t> bytes = bytes_of(seed);
  run(bytes.data(), bytes.size());
}

void run_file(const std::filesystem::path& path) {
  std::strncpy(running_file.data(), path.c_str(), running_file.size() - 1);
  alarm(60);
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "a file cannot be read");
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::uint8_t> plain(bytes.begin(), bytes.end());
  run(plain.data(), plain.size());
}

/// Waits until the library's threads have ended, except those of the copy team and the watcher of
/// tickets, which stay. In a process that has made many threads, gcc's leak sanitizer mistakes a
/// live thread for an older one with the same number, and reports memory that only the live one
/// references as leaked.
void let_threads_end() {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const std::string own = std::to_string(getpid());
  bool are_left = true;
  while (are_left && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    are_left = false;
    std::error_code none;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", none)) {
      std::string name;
      std::ifstream(task.path() / "comm") >> name; // nothing, if it has ended
      const bool stays = name.rfind("pinlane-copy", 0) == 0 || name == "pinlane-watcher";
      are_left |= !stays && !name.empty() && task.path().filename() != own;
    }
  }
}

/// Prints the statuses of each call, to show the coverage of the programs.
void print_outcomes() {
  for (std::size_t number = 0; number < call_count; ++number) {
    std::printf("%s:", calls[number].name);
    for (std::size_t status = 0; status < most_statuses; ++status) {
      if (const std::uint64_t count = outcomes[number][status]) {
        const char* const name = pinlane_status_name(static_cast<pinlane_status>(status));
        std::printf(" %s %llu", name + std::strlen("PINLANE_STATUS_"),
                    static_cast<unsigned long long>(count));
      }
    }
    std::printf("\n");
  }
}

} // namespace

int main(int argc, char** argv) {
  calm = argc > 1 && std::strcmp(argv[1], "--calm") == 0;
  argc -= calm ? 1 : 0;
  argv += calm ? 1 : 0;
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: fuzz [--calm] PATH ... | --random CALLS [SEED] | --seed SEED [FILE]\n");
    return 2;
  }
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGALRM}) {
    std::signal(signal, died);
  }
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(say_which_program);
  }
  const std::string mode = argv[1];
  const std::uint64_t number = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 0;
  std::uint64_t programs = 0;
  if (mode == "--seed") {
    if (argc > 3) {
      const std::vector<std::uint8_t> bytes = bytes_of(number);
      std::ofstream(argv[3], std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
    }
    tracing = true;
    run_seed(number);
    programs = 1;
  } else if (mode == "--random") {
    const std::uint64_t first = argc > 3 ? std::strtoull(argv[3], nullptr, 0) : 1;
    for (; calls_made < number; ++programs) {
      run_seed(first + programs);
    }
    if (std::getenv("PINLANE_FUZZ_OUTCOMES") != nullptr) {
      print_outcomes();
    }
  } else {
    for (int index = 1; index < argc; ++index) {
      std::vector<std::filesystem::path> files;
      if (std::filesystem::is_directory(argv[index])) {
        for (const auto& entry : std::filesystem::directory_iterator(argv[index])) {
          files.push_back(entry.path());
        }
      } else {
        files.emplace_back(argv[index]);
      }
      for (const auto& path : files) {
        run_file(path);
        ++programs;
      }
    }
  }
  if (calm) {
    let_threads_end();
  }
  std::printf("%llu programs, %llu calls: nothing wrong\n",
              static_cast<unsigned long long>(programs),
              static_cast<unsigned long long>(calls_made.load()));
  return 0;
}

#endif
