# find_package(pinlane): the targets pinlane::pinlane (shared) and pinlane::pinlane_static, as far
# as these libraries are installed.
#
# An installation can be moved as a whole: this file knows where it lies in it, and pinlane.pc
# knows which system libraries the static library needs.

get_filename_component(_pinlane_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
foreach(_pinlane_folder "lib/${CMAKE_LIBRARY_ARCHITECTURE}" lib64 lib)
  set(_pinlane_lib "${_pinlane_prefix}/${_pinlane_folder}")
  if(EXISTS "${_pinlane_lib}/pkgconfig/pinlane.pc")
    break()
  endif()
endforeach()

if(EXISTS "${_pinlane_lib}/libpinlane.so" AND NOT TARGET pinlane::pinlane)
  add_library(pinlane::pinlane SHARED IMPORTED)
  set_target_properties(pinlane::pinlane PROPERTIES
    IMPORTED_LOCATION "${_pinlane_lib}/libpinlane.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_pinlane_prefix}/include")
endif()

if(EXISTS "${_pinlane_lib}/libpinlane.a" AND NOT TARGET pinlane::pinlane_static)
  file(STRINGS "${_pinlane_lib}/pkgconfig/pinlane.pc" _pinlane_needs REGEX "^Libs\\.private:")
  string(REGEX REPLACE "^Libs\\.private: *" "" _pinlane_needs "${_pinlane_needs}")
  separate_arguments(_pinlane_needs UNIX_COMMAND "${_pinlane_needs}")
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
    IMPORTED_LOCATION "${_pinlane_lib}/libpinlane.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_pinlane_prefix}/include"
    INTERFACE_LINK_LIBRARIES "${_pinlane_needs}")
endif()

if(NOT TARGET pinlane::pinlane AND NOT TARGET pinlane::pinlane_static)
  set(pinlane_FOUND FALSE)
  set(pinlane_NOT_FOUND_MESSAGE "there is no pinlane.pc with its libraries in ${_pinlane_prefix}")
endif()

unset(_pinlane_prefix)
unset(_pinlane_folder)
unset(_pinlane_lib)
unset(_pinlane_needs)
