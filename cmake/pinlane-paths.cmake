# Where the parts of this installation lie. `cargo cinstall` installs this file, which looks for
# them; CMake's installation has one of the same name with the paths that it has used.

get_filename_component(_pinlane_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
file(GLOB _pinlane_nested
  "${_pinlane_prefix}/lib*/*/pkgconfig/pinlane.pc"
  "${_pinlane_prefix}/lib*/*/*/pkgconfig/pinlane.pc")
foreach(_pinlane_pc "${_pinlane_prefix}/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pkgconfig/pinlane.pc"
    "${_pinlane_prefix}/lib64/pkgconfig/pinlane.pc" "${_pinlane_prefix}/lib/pkgconfig/pinlane.pc"
    ${_pinlane_nested})
  get_filename_component(_pinlane_libdir "${_pinlane_pc}/../.." ABSOLUTE)
  if(EXISTS "${_pinlane_pc}")
    break()
  endif()
endforeach()
set(_pinlane_includedir "${_pinlane_prefix}/include")

unset(_pinlane_prefix)
unset(_pinlane_nested)
unset(_pinlane_pc)
