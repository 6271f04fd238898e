// Processes in which no thread can be started, and children that must not disturb their parents.

#pragma once

#include <cstdio>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

#if defined(__linux__)
#include <cerrno>
#include <cstddef>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

/// From now on no thread of this process can start another one, or fork. Returns whether that
/// worked.
inline bool refuse_threads() {
#if defined(__linux__) && defined(SYS_seccomp) && defined(SYS_clone3)
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program = {sizeof(rules) / sizeof(rules[0]), rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
#else
  return false;
#endif
}

/// A sanitizer would report the fault of a child, and end it differently.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool is_sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool is_sanitized = true;
#else
constexpr bool is_sanitized = false;
#endif
#else
constexpr bool is_sanitized = false;
#endif

/// How a child ended.
enum class ending { well, badly, by_a_fault, late };

/// Runs `work` in a forked child. Its result decides how the child ends.
template <class Work>
ending in_child(unsigned seconds, Work work) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(seconds);
    _exit(work() ? 0 : 1);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) {
    return ending::badly;
  }
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return signal == SIGALRM                       ? ending::late
           : signal == SIGSEGV || signal == SIGBUS ? ending::by_a_fault
                                                   : ending::badly;
  }
  return WEXITSTATUS(status) == 0 ? ending::well : ending::badly;
}
