# Compiler flags, in one place: sinter_compile_options(<target>) gives a target of this project its warnings,
# its processor and its sanitizers.

function(sinter_compile_options target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion
    # Nothing here reads errno or floating-point traps; without them the compiler may vectorise and use FMA.
    -fno-math-errno -fno-trapping-math)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # False alarms: GCC bugs 105651 (std::string's operator+) and 105593 (AVX-512 intrinsics).
    target_compile_options(${target} PRIVATE -Wno-restrict -Wno-maybe-uninitialized)
  endif()
  if(SINTER_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(SINTER_NATIVE)
    target_compile_options(${target} PRIVATE -march=native)
  endif()
  if(SINTER_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${SINTER_SANITIZE} -fno-omit-frame-pointer)
    if(SINTER_SANITIZE MATCHES "undefined")
      target_compile_options(${target} PRIVATE -fno-sanitize-recover=undefined)
    endif()
    target_link_options(${target} PRIVATE -fsanitize=${SINTER_SANITIZE})
  endif()
endfunction()
