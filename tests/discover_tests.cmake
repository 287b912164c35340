# sinter_discover_tests(<program> <prefix> <filter>): in groups, of which grouped_tests.cmake tells. Paths may have any character.
function(sinter_discover_tests target prefix filter)
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${target}_in_groups.cmake)
  file(GENERATE OUTPUT ${file} CONTENT "set(program [==[$<TARGET_FILE:${target}>]==])\nset(prefix ${prefix})\nset(filter [==[${filter}]==])
include([==[${CMAKE_CURRENT_FUNCTION_LIST_DIR}/grouped_tests.cmake]==])\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()
