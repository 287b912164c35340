#!/usr/bin/env bash
# Tests are found and run in groups, in folders of any name: a program that lists two suites and says what it is to run.
# Usage: grouped_tests_test.sh <folder> <generator>
set -euo pipefail
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work="$1/with blanks (and ümlauts)"
rm -rf "$1" && mkdir -p "$work"
fail() { echo "FAILED: $*"; exit 1; }

cat >"$work/program" <<'TEXT'
#!/usr/bin/env bash
[ "$1" = --gtest_list_tests ] || { echo "runs $1"; exit 0; }
[ "$2" = '--gtest_filter=-Slow.*' ] || exit 1
printf 'Few.\n  One\n  Two/0  # GetParam() = 1\nMany.\n'
for i in $(seq 41); do echo "  T$i"; done
TEXT
chmod +x "$work/program"
cp "$tests"/*.cmake "$work/"
cat >"$work/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.22)
project(grouped NONE)
enable_testing()
include(discover_tests.cmake)
add_executable(program IMPORTED)
set_target_properties(program PROPERTIES IMPORTED_LOCATION ${CMAKE_SOURCE_DIR}/program)
sinter_discover_tests(program some. "-Slow.*")
TEXT
cmake -G "$2" -S "$work" -B "$work/build" >/dev/null
(cd "$work/build" && ctest -V) >"$work/out" || fail "$(cat "$work/out")"
grep -q '100% tests passed, 0 tests failed out of 3' "$work/out" || fail "other groups: $(cat "$work/out")"
grep -qF 'runs --gtest_filter=Few.One:Few.Two/0' "$work/out" || fail "other names: $(cat "$work/out")"
grep -qF 'runs --gtest_filter=Many.T41' "$work/out" || fail "what is behind forty is lost: $(cat "$work/out")"
