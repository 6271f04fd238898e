/// @file
/// The mode of a file: with or without exceptions, and with or without RTTI.
///
/// Files of one program may have different modes. Functions that can fail, and classes with virtual
/// functions, are then compiled to different code, of which the linker would keep one for all
/// files. So all declarations of these headers lie in an inline namespace for each mode. A `stream`
/// of a file with `-fno-exceptions` is a different type than in a file without that flag: programs
/// pass such objects by their handles (`get()`), or do not link. The standard (C++17, C++20) makes
/// no difference.

#ifndef PINLANE_CPP_MODE_HPP
#define PINLANE_CPP_MODE_HPP

#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
#define PINLANE_CPP_EXCEPTIONS 1
#endif

#if defined(__cpp_rtti) || defined(_CPPRTTI)
#define PINLANE_CPP_RTTI 1
#endif

#if defined(PINLANE_CPP_EXCEPTIONS) && defined(PINLANE_CPP_RTTI)
#define PINLANE_CPP_MODE full
#elif defined(PINLANE_CPP_EXCEPTIONS)
#define PINLANE_CPP_MODE no_rtti
#elif defined(PINLANE_CPP_RTTI)
#define PINLANE_CPP_MODE no_exceptions
#else
#define PINLANE_CPP_MODE bare
#endif

#endif // PINLANE_CPP_MODE_HPP
