/* Another handler of SIGSEGV: how it is installed, and whether it gets its own faults. */

#ifndef PINLANE_TESTS_OWNER_H
#define PINLANE_TESTS_OWNER_H

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* A stack also holds the thread-local memory of all libraries: 12 KiB of CUDA's runtime alone. */
enum { PAGE = 4096, SIGNAL_STACK = 16384, SMALL_STACK = 65536 };

struct owner {
  const char *name;
  int flags;       /* of sigaction; -1: installed by signal() */
  int blocks_usr1; /* while it runs */
};

static const struct owner owners[] = {
    {"handler", 0, 1},
    {"info", SA_SIGINFO, 0},
    {"stack", SA_SIGINFO | SA_ONSTACK, 1},
    {"nested", SA_SIGINFO | SA_NODEFER, 0},
    {"once", (int)(SA_SIGINFO | SA_RESETHAND), 0},
    {"signal", -1, 0},
};

static const struct owner *owner;
static volatile sig_atomic_t times_called, is_right;
static sigjmp_buf after_fault;
static char *forbidden; /* a page without access */
static char *signal_stack;
static struct sigaction before_owner;
static void (*handler_before_owner)(int);

static int blocks(int number) {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, NULL, &mask);
  return sigismember(&mask, number);
}

static void called(int is_address_right) {
  const int defers = owner->flags == -1 || (owner->flags & SA_NODEFER) == 0;
  times_called = times_called + 1;
  is_right = is_address_right && blocks(SIGUSR1) == owner->blocks_usr1 && !blocks(SIGUSR2) &&
             blocks(SIGSEGV) == defers;
  siglongjmp(after_fault, 1);
}

static void plain_handler(int number) { called(number == SIGSEGV); }

static void info_handler(int number, siginfo_t *info, void *context) {
  const char here = 0;
  const uintptr_t at = (uintptr_t)&here - (uintptr_t)signal_stack;
  const int is_there = (owner->flags & SA_ONSTACK) == 0 || at < SIGNAL_STACK;
  called(number == SIGSEGV && context != NULL && (char *)info->si_addr == forbidden && is_there);
}

static void install_owner(void) {
  if (owner->flags == -1) {
    handler_before_owner = signal(SIGSEGV, plain_handler);
    return;
  }
  struct sigaction action;
  memset(&action, 0, sizeof action);
  sigemptyset(&action.sa_mask);
  if (owner->blocks_usr1) sigaddset(&action.sa_mask, SIGUSR1);
  action.sa_flags = owner->flags;
  if ((owner->flags & SA_SIGINFO) != 0) {
    action.sa_sigaction = info_handler;
  } else {
    action.sa_handler = plain_handler;
  }
  sigaction(SIGSEGV, &action, &before_owner);
}

/* Like a library that restores the previous handler. */
static void remove_owner(void) {
  if (owner->flags == -1) {
    signal(SIGSEGV, handler_before_owner);
  } else {
    sigaction(SIGSEGV, &before_owner, NULL);
  }
}

/* Gives the thread a signal stack of the usual size in runtimes. False for an unknown owner. */
static inline int choose_owner(const char *name) {
  static stack_t stack;
  for (size_t i = 0; i < sizeof owners / sizeof *owners; i++) {
    if (strcmp(owners[i].name, name) == 0) owner = &owners[i];
  }
  forbidden = (char *)mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  signal_stack = (char *)mmap(NULL, SIGNAL_STACK, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack.ss_sp = signal_stack;
  stack.ss_size = SIGNAL_STACK;
  sigaltstack(&stack, NULL);
  return owner != NULL;
}

static void touch(char *address) { *(volatile char *)address = 1; }

/* Whether a fault of the program reaches the owner with the system's arguments. */
static inline int owner_gets_faults(void) {
  times_called = 0;
  is_right = 0;
  if (sigsetjmp(after_fault, 1) == 0) touch(forbidden);
  return times_called == 1 && is_right;
}

/* Whether another such fault ends the process, because no handler is left. */
static int a_fault_ends_the_process(void) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    touch(forbidden);
    _exit(0);
  }
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

/* The steps of a program, in C or C++. */
struct program {
  char *memory;            /* a page of page-locked memory */
  void (*starts_copy)(void); /* of its first 100 bytes; nothing waits for it */
  void (*waits)(void);
  void (*calls)(void); /* a call that does nothing */
  int (*findings)(void);
};

static void (*of_thread)(void);
static void *run_thread(void *unused) {
  (void)unused;
  static char own[SIGNAL_STACK];
  stack_t stack;
  memset(&stack, 0, sizeof stack);
  stack.ss_sp = own;
  stack.ss_size = sizeof own;
  sigaltstack(&stack, NULL);
  of_thread();
  return NULL;
}

/* Runs `work` on a thread with a small stack. */
static void on_a_small_thread(void (*work)(void)) {
  pthread_attr_t attributes;
  pthread_t thread;
  of_thread = work;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, SMALL_STACK);
  if (pthread_create(&thread, &attributes, run_thread, NULL) != 0) {
    printf("no thread starts, ");
    return;
  }
  pthread_join(thread, NULL);
}

static char *races_at;
static void race(void) { touch(races_at); }

/*
 * Runs a correct program, and then one store too early. Prints how many such stores were found, how
 * often the owner was called for accesses that are not its own, and whether it gets its own.
 *
 * `is_called`: the program makes a call between the moment and its next access.
 */
static inline int runs(const struct program *program, const char *moment, int is_called) {
  char *const memory = program->memory;
  program->starts_copy();
  const int after = strcmp(moment, "after") == 0, removed = strcmp(moment, "removed") == 0;
  const int between = strcmp(moment, "between") == 0;
  if (after || between) install_owner();
  if (removed) {
    signal(SIGSEGV, SIG_DFL);
  }
  if (between) remove_owner();
  if (is_called) program->calls();
  times_called = 0;
  if (sigsetjmp(after_fault, 1) == 0) {
    for (int at = 100; at < PAGE; at++) memory[at] = (char)at;
    program->starts_copy();
    for (int at = 100; at < PAGE; at++) {
      if (memory[at] != (char)at) printf("byte %d is wrong, ", at);
    }
    races_at = memory + 50;
    on_a_small_thread(race);
  }
  program->waits();
  printf("%d found, %d times called", program->findings(), (int)times_called);
  const int is_installed = after || strcmp(moment, "before") == 0;
  int right = is_installed ? owner_gets_faults() : 1;
  if (!is_installed || (owner->flags != -1 && (owner->flags & (int)SA_RESETHAND) != 0)) {
    right = right && a_fault_ends_the_process();
  }
  printf(", %s\n", right ? "faults are the owner's" : "faults go astray");
  return right ? 0 : 1;
}

#endif
