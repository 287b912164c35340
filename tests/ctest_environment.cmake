# Read by ctest before it starts tests. Many run at once (ctest -j), and each would take all processors for its threads: on
# 16 of them 16 tests had 256 threads, and took up to a hundred times as long as alone.
if(NOT DEFINED ENV{SINTER_THREADS})
  set(ENV{SINTER_THREADS} 2)
endif()
