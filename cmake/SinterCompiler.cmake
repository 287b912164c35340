# Compiler flags, in one place: sinter_compile_options(<target>) gives a target of this project its warnings,
# its processor and its sanitizers.

function(sinter_compile_options target)
  set(warnings -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # False alarms: GCC bugs 105651 (std::string's operator+) and 105593 (AVX-512 intrinsics).
    list(APPEND warnings -Wno-restrict -Wno-maybe-uninitialized -Wno-uninitialized)
  endif()
  if(SINTER_WERROR)
    list(APPEND warnings -Werror)
  endif()
  # Nothing here reads errno or floating-point traps; without them the compiler may vectorise and use FMA.
  set(cxx_options ${warnings} -Wpedantic -fno-math-errno -fno-trapping-math)
  if(SINTER_NATIVE)
    list(APPEND cxx_options -march=native)
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${cxx_options}>")
  if(SINTER_WITH_CUDA)
    # The standard is named here because CMake 3.25 does not know the flag of newer compilers.
    # {fmt} 9 believes that nvcc knows no constexpr functions; it does.
    # -Wpedantic would warn about the line directives that nvcc itself writes; -Wconversion about CUDA's headers.
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-DFMT_USE_CONSTEXPR=1;--extended-lambda;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra,-Wshadow,-Wno-parentheses>")
    if(SINTER_WERROR)
      target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
    endif()
  endif()
  if(SINTER_SANITIZE)
    set(sanitize -fsanitize=${SINTER_SANITIZE} -fno-omit-frame-pointer)
    if(SINTER_SANITIZE MATCHES "undefined")
      list(APPEND sanitize -fno-sanitize-recover=undefined)
    endif()
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${sanitize}>")
    target_link_options(${target} PRIVATE -fsanitize=${SINTER_SANITIZE})
  endif()
endfunction()
