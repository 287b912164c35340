# Compiler flags, in one place: sinter_compile_options(<target> [TEST]) gives a target of this project its warnings,
# its processor and its sanitizers; sinter_optimise() says where less than -O3 is enough, and sinter_precompile() spares
# the compiler the headers that every file reads. docs/building.md says what each of them saves.

function(sinter_compile_options target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TEST" "" "")
  set(warnings -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # False alarms: GCC bugs 105651 (std::string's operator+) and 105593 (AVX-512 intrinsics).
    list(APPEND warnings -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds -Wno-maybe-uninitialized -Wno-uninitialized)
  endif()
  if(SINTER_WERROR)
    list(APPEND warnings -Werror)
  endif()
  # Nothing here reads errno or floating-point traps; without them the compiler may vectorise and use FMA.
  set(cxx_options ${warnings} -Wpedantic -fno-math-errno -fno-trapping-math)
  if(SINTER_NATIVE)
    list(APPEND cxx_options -march=native)
  elseif(SINTER_ARCH)
    list(APPEND cxx_options -march=${SINTER_ARCH})
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${cxx_options}>")
  if(SINTER_WITH_CUDA)
    # The standard is named here because CMake 3.25 does not know the flag of newer compilers.
    # {fmt} 9 believes that nvcc knows no constexpr functions; it does.
    # -Wpedantic would warn about the line directives that nvcc itself writes; -Wconversion about CUDA's headers.
    # Compressed, device code takes a seventh of its room; it is unpacked when a kernel of its file is first used.
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:--compress-mode=size;-std=c++20;-DFMT_USE_CONSTEXPR=1;--extended-lambda;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra,-Wshadow,-Wno-parentheses>")
    if(SINTER_WERROR)
      target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
    endif()
  endif()
  if(SINTER_SANITIZE)
    # What tests do to memory is checked, for they read what the library gives them; their own arithmetic is not:
    # compiling those checks takes a fifth to a third of a test's time.
    set(sanitizers ${SINTER_SANITIZE})
    if(arg_TEST)
      string(REGEX REPLACE ",undefined|undefined," "" sanitizers ${sanitizers})
    endif()
    set(sanitize -fsanitize=${sanitizers} -fno-omit-frame-pointer)
    if(sanitizers MATCHES "undefined")
      list(APPEND sanitize -fno-sanitize-recover=undefined)
    endif()
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${sanitize}>")
    target_link_options(${target} PRIVATE -fsanitize=${SINTER_SANITIZE})
  endif()
endfunction()

# Release builds optimise with -O3, which kernels need and nothing else gains from: lowers it for the SOURCES of the
# target in whose folder this is called, or for the whole TARGET. A build type with its own -O keeps that, but under
# sanitizers, whose checks multiply what the compiler must optimise, the level SANITIZED counts where it is given.
function(sinter_optimise level)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TARGET;SANITIZED" "SOURCES")
  if(SINTER_SANITIZE AND arg_SANITIZED)
    set(level ${arg_SANITIZED})
  elseif(NOT CMAKE_CXX_FLAGS_RELEASE MATCHES "-O3")
    return()
  endif()
  if(arg_TARGET)
    target_compile_options(${arg_TARGET} PRIVATE "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:${level}>")
  endif()
  if(arg_SOURCES)
    set_property(SOURCE ${arg_SOURCES} APPEND PROPERTY COMPILE_OPTIONS "$<$<CONFIG:Release>:${level}>")
  endif()
endfunction()

# Precompiles the headers that nearly every file reads, and those given beside them. No file may rely on it:
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds without.
set(SINTER_PRECOMPILED
  <algorithm> <array> <cmath> <cstdint> <functional> <limits> <map> <memory> <mutex> <optional> <span> <string>
  <string_view> <tuple> <utility> <vector> <sinter/precompiled_format.h>
  <sinter/core/op/registry.h> <sinter/core/runtime/thread_pool.h> <sinter/ops/common/op_support.h>)
configure_file(${PROJECT_SOURCE_DIR}/cmake/precompiled_format.h ${PROJECT_BINARY_DIR}/include/sinter/precompiled_format.h COPYONLY)
function(sinter_precompile target)
  target_precompile_headers(${target} PRIVATE ${SINTER_PRECOMPILED} ${ARGN})
  sinter_preprocess_precompiled(${target})
endfunction()

# Compiles those SOURCES of a target that lie in one folder as one file: headers are read, and templates instantiated, once for
# all of them. Not under sanitizers, where the build shows that each source includes what it needs; -DCMAKE_UNITY_BUILD=OFF
# compiles each by itself, too.
function(sinter_join target)
  if(SINTER_SANITIZE OR (DEFINED CMAKE_UNITY_BUILD AND NOT CMAKE_UNITY_BUILD))
    return()
  endif()
  foreach(source IN LISTS ARGN)
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${source})
    cmake_path(GET folder PARENT_PATH folder)
    string(MAKE_C_IDENTIFIER ${folder} folder)
    set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${folder})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # takes sources that are included for headers
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>")
  endif()
endfunction()

# Lets ccache see what is inside a precompiled header of GCC.
function(sinter_preprocess_precompiled target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>")
  endif()
endfunction()
