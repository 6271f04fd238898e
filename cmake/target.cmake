# Sets `triple`, what Cargo builds for: the machine that the compilers make programs for. Cargo
# always gets it, so that no configuration of Cargo chooses another one. Stops if compilers,
# processor and triple do not agree, or if Cargo cannot build for it. What links for another machine
# is CMake's compiler: `linker` is Cargo's variable for it, `linking` what rustc gets besides.

if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  math(EXPR bits "8 * ${CMAKE_SIZEOF_VOID_P}")
  message(FATAL_ERROR "pinlane needs 64-bit Linux, for the emulated device too, and CMake builds "
    "for ${bits}-bit ${CMAKE_SYSTEM_NAME}.")
endif()

# A machine as Rust calls it.
function(pinlane_machine result name)
  string(TOLOWER "${name}" name)
  string(REGEX REPLACE "^(amd64|x86-64)$" "x86_64" name "${name}")
  string(REGEX REPLACE "^arm64$" "aarch64" name "${name}")
  string(REGEX REPLACE "^riscv64$" "riscv64gc" name "${name}")
  string(REGEX REPLACE "^(ppc64le|ppc64el)$" "powerpc64le" name "${name}")
  set("${result}" "${name}" PARENT_SCOPE)
endfunction()

pinlane_machine(machine "${CMAKE_SYSTEM_PROCESSOR}")
set(libc gnu)
set(linking "")
foreach(language C CXX)
  set(options "")
  if(CMAKE_${language}_COMPILER_TARGET)
    set(options "--target=${CMAKE_${language}_COMPILER_TARGET}")
  endif()
  if(NOT CMAKE_${language}_COMPILER)
    continue()
  endif()
  execute_process(COMMAND "${CMAKE_${language}_COMPILER}" ${options} -dumpmachine
    OUTPUT_VARIABLE made ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(made MATCHES "musl")
    set(libc musl)
  endif()
  string(REGEX REPLACE "-.*" "" made "${made}")
  pinlane_machine(made "${made}")
  if(made AND NOT made STREQUAL machine)
    message(FATAL_ERROR "CMAKE_SYSTEM_PROCESSOR is ${CMAKE_SYSTEM_PROCESSOR}, and "
      "${CMAKE_${language}_COMPILER} makes programs for ${made}. Name the compilers and the "
      "processor of one machine in a toolchain file (CMAKE_TOOLCHAIN_FILE).")
  endif()
  if(language STREQUAL "C")
    foreach(option ${options})
      list(APPEND linking -C "link-arg=${option}")
    endforeach()
  endif()
endforeach()
if(CMAKE_SYSROOT)
  list(APPEND linking -C "link-arg=--sysroot=${CMAKE_SYSROOT}")
endif()

execute_process(COMMAND "${PINLANE_CARGO}" -vV WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  OUTPUT_VARIABLE host ERROR_VARIABLE errors)
if(NOT host MATCHES "host: ([^\n]+)")
  message(FATAL_ERROR "${PINLANE_CARGO} -vV does not say its host.\n${host}${errors}")
endif()
set(host "${CMAKE_MATCH_1}")

set(triple "${PINLANE_TARGET}")
set(by "PINLANE_TARGET")
if(NOT triple)
  set(triple "$ENV{CARGO_BUILD_TARGET}")
  set(by "The environment's CARGO_BUILD_TARGET")
endif()
if(NOT triple AND host MATCHES "^${machine}-" AND NOT CMAKE_CROSSCOMPILING)
  set(triple "${host}")
elseif(NOT triple)
  set(triple "${machine}-unknown-linux-${libc}")
endif()
if(NOT triple MATCHES "^${machine}-")
  message(FATAL_ERROR "${by} is ${triple}, and CMake builds for ${CMAKE_SYSTEM_PROCESSOR}. Give "
    "-DPINLANE_TARGET=${machine}-unknown-linux-${libc}, or compilers for the former in a toolchain "
    "file (CMAKE_TOOLCHAIN_FILE).")
endif()

# Rust's standard library and a linker are not there for each machine. A library of one line tells.
set(linker "")
if(NOT triple STREQUAL host)
  string(TOUPPER "${triple}" variable)
  string(REGEX REPLACE "[-.]" "_" variable "CARGO_TARGET_${variable}_LINKER")
  if(NOT DEFINED ENV{${variable}})
    set(linker "${variable}=${CMAKE_C_COMPILER}")
  endif()
  set(probe "${PROJECT_BINARY_DIR}/probe")
  file(WRITE "${probe}/Cargo.toml"
    "[package]\nname = \"probe\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n")
  file(WRITE "${probe}/src/lib.rs" "#[no_mangle]\npub extern \"C\" fn probe() {}\n")
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env ${linker} "${PINLANE_CARGO}" rustc --quiet --offline --lib
            --crate-type cdylib --manifest-path "${probe}/Cargo.toml" --target "${triple}"
            --target-dir "${probe}/target" -- ${linking}
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    RESULT_VARIABLE status ERROR_VARIABLE errors)
  if(status)
    message(FATAL_ERROR "Cargo cannot build for ${triple}. It needs Rust's standard "
      "library (`rustup target add ${triple}`) and a linker (the compiler of the toolchain "
      "file, or the environment's ${variable}). Or build libpinlane.a elsewhere, and give "
      "-DPINLANE_LIBRARY=its path.\n${errors}")
  endif()
endif()
