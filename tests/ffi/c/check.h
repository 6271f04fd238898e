/* The check macros of the tests in C. They count checks and failures. */

#ifndef PINLANE_TESTS_CHECK_H
#define PINLANE_TESTS_CHECK_H

#include <pinlane/pinlane.h>

#include <stdio.h>
#include <string.h>

/* Programs are compiled against these layouts: a struct may only grow, and no member may move. */
#define MEMBER(type, member, offset)                                                               \
  _Static_assert(offsetof(type, member) == (offset), #type "." #member)

static int checks = 0, failures = 0;

static inline void expect(const char *file, int line, const char *what, int holds) {
  checks++;
  if (!holds) {
    failures++;
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
  }
}
#define EXPECT(condition) expect(__FILE__, __LINE__, #condition, (condition))

static inline void expect_status(const char *file, int line, const char *call,
                                 pinlane_status wanted, pinlane_status got) {
  expect(file, line, call, wanted == got);
  if (wanted != got) {
    fprintf(stderr, "  gave %s: %s\n", pinlane_status_name(got), pinlane_last_error());
  } else if (got != PINLANE_STATUS_OK) {
    const char *const message = pinlane_last_error();
    const size_t name = strcspn(call, "(");
    const int direct = strncmp(call, "pinlane_", 8) == 0;
    expect(file, line, "a message begins with the function",
           strncmp(message, call, direct ? name : 8) == 0 && (!direct || message[name] == ':'));
    expect(file, line, "a message names nothing of Rust",
           strstr(message, "::") == NULL && strstr(message, "()") == NULL);
  }
}
#define OK(call) expect_status(__FILE__, __LINE__, #call, PINLANE_STATUS_OK, (call))
#define REFUSED(status, call)                                                                      \
  expect_status(__FILE__, __LINE__, #call, PINLANE_STATUS_##status, (call))

/* The exit status of main. */
static inline int verdict(const char *of_what) {
  printf("%d checks of %s, %d failed\n", checks, of_what, failures);
  return failures == 0 ? 0 : 1;
}

#endif
