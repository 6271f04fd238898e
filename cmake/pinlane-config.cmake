# find_package(pinlane): the targets pinlane::pinlane (shared) and pinlane::pinlane_static, as far
# as these libraries are installed.
#
# pinlane-paths.cmake knows where they lie, and pinlane.pc which system libraries the static library
# needs.

include("${CMAKE_CURRENT_LIST_DIR}/pinlane-paths.cmake")
set(_pinlane_shared "${_pinlane_libdir}/libpinlane.so.${pinlane_VERSION}")
string(REGEX MATCH "^([1-9][0-9]*|0\\.[0-9]+)" _pinlane_line "${pinlane_VERSION}")

if(EXISTS "${_pinlane_shared}" AND NOT TARGET pinlane::pinlane)
  add_library(pinlane::pinlane SHARED IMPORTED)
  set_target_properties(pinlane::pinlane PROPERTIES
    IMPORTED_LOCATION "${_pinlane_shared}"
    IMPORTED_SONAME "libpinlane.so.${_pinlane_line}"
    INTERFACE_INCLUDE_DIRECTORIES "${_pinlane_includedir}")
endif()

if(EXISTS "${_pinlane_libdir}/libpinlane.a" AND NOT TARGET pinlane::pinlane_static)
  file(STRINGS "${_pinlane_libdir}/pkgconfig/pinlane.pc" _pinlane_needs REGEX "^Libs\\.private:")
  string(REGEX REPLACE "^Libs\\.private: *" "" _pinlane_needs "${_pinlane_needs}")
  separate_arguments(_pinlane_needs UNIX_COMMAND "${_pinlane_needs}")
  list(REMOVE_ITEM _pinlane_needs "-Wl,--exclude-libs,libpinlane.a")
  # Built with CUDA: the runtime is that of a toolkit on this machine. If none is found, the
  # linker looks for it, and says so.
  if("-lcudart_static" IN_LIST _pinlane_needs)
    find_library(PINLANE_CUDART cudart_static
      HINTS ${CUDAToolkit_LIBRARY_DIR} ENV CUDA_HOME ENV CUDA_PATH ENV CUDA_ROOT
            ENV CUDA_TOOLKIT_ROOT_DIR
      PATHS /usr/local/cuda /opt/cuda /usr/lib/cuda
      PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib targets/sbsa-linux/lib)
    if(PINLANE_CUDART)
      list(TRANSFORM _pinlane_needs REPLACE "^-lcudart_static$" "${PINLANE_CUDART}")
    endif()
  endif()
  add_library(pinlane::pinlane_static STATIC IMPORTED)
  set_target_properties(pinlane::pinlane_static PROPERTIES
    IMPORTED_LOCATION "${_pinlane_libdir}/libpinlane.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_pinlane_includedir}"
    INTERFACE_LINK_OPTIONS "-Wl,--exclude-libs,libpinlane.a"
    INTERFACE_LINK_LIBRARIES "${_pinlane_needs}")
endif()

if(NOT TARGET pinlane::pinlane AND NOT TARGET pinlane::pinlane_static)
  set(pinlane_FOUND FALSE)
  set(pinlane_NOT_FOUND_MESSAGE
    "there are no libraries of pinlane ${pinlane_VERSION} in ${_pinlane_libdir}")
endif()

unset(_pinlane_libdir)
unset(_pinlane_includedir)
unset(_pinlane_shared)
unset(_pinlane_line)
unset(_pinlane_needs)
