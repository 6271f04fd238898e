# Releases that share a major version are compatible; before 1.0, those that share a minor one. The
# installed header knows the version.

include("${CMAKE_CURRENT_LIST_DIR}/pinlane-paths.cmake")
file(STRINGS "${_pinlane_includedir}/pinlane/pinlane.h" PACKAGE_VERSION
  REGEX "^#define PINLANE_VERSION_STRING" LIMIT_COUNT 1)
string(REGEX REPLACE "[^0-9.]" "" PACKAGE_VERSION "${PACKAGE_VERSION}")

set(PACKAGE_VERSION_COMPATIBLE FALSE)
set(_pinlane_line "^([1-9][0-9]*|0\\.[0-9]+)")
string(REGEX MATCH "${_pinlane_line}" _pinlane_has "${PACKAGE_VERSION}")
string(REGEX MATCH "${_pinlane_line}" _pinlane_wanted "${PACKAGE_FIND_VERSION}")
if(_pinlane_has STREQUAL _pinlane_wanted
   AND PACKAGE_FIND_VERSION VERSION_LESS_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
if(CMAKE_SIZEOF_VOID_P AND NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  set(PACKAGE_VERSION_UNSUITABLE TRUE)
endif()

unset(_pinlane_libdir)
unset(_pinlane_includedir)
unset(_pinlane_line)
unset(_pinlane_has)
unset(_pinlane_wanted)
