# Adds the tree SINTER_SOURCE to this project and fails if it decides anything for the project: variables of CMake's own,
# names of targets, tests.
foreach(name IN ITEMS docs doc install_docs format check tests examples benchmarks fuzzers)  # as other projects have
  add_custom_target(${name})
endforeach()

set(cmakes_own "^(BUILD_|CMAKE_|CPACK_|CTEST_)")
# What every find_package() leaves behind.
set(passing "^CMAKE_(CURRENT_|MATCH_|HAVE_|FIND_|PARENT_LIST_FILE|THREAD|USE_PTHREADS)")
get_cmake_property(names_before VARIABLES)
list(FILTER names_before INCLUDE REGEX ${cmakes_own})
foreach(name IN LISTS names_before)
  set(before_${name} "${${name}}")
endforeach()

add_subdirectory(${SINTER_SOURCE} sinter)

get_cmake_property(names_after VARIABLES)
list(FILTER names_after INCLUDE REGEX ${cmakes_own})
list(FILTER names_after EXCLUDE REGEX ${passing})
set(decided "")
foreach(name IN LISTS names_after)
  if(NOT name IN_LIST names_before OR NOT "${${name}}" STREQUAL "${before_${name}}")
    list(APPEND decided "${name} = '${${name}}' (was '${before_${name}}')")
  endif()
endforeach()
get_property(targets DIRECTORY ${SINTER_SOURCE} PROPERTY BUILDSYSTEM_TARGETS)
list(FILTER targets EXCLUDE REGEX "^sinter")
foreach(name IN LISTS targets)
  list(APPEND decided "the target ${name}")
endforeach()
get_property(tests DIRECTORY ${SINTER_SOURCE} PROPERTY TESTS)
foreach(name IN LISTS tests)
  list(APPEND decided "the test ${name}")
endforeach()
if(decided)
  list(JOIN decided "\n  " decided)
  message(FATAL_ERROR "Sinter decides for the project that it is a part of:\n  ${decided}")
endif()
