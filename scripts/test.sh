#!/usr/bin/env bash
# Installs what is missing, builds Sinter with its tests and runs them all. Ends with the counts.
# SINTER_BUILD_DIR is where to build, in place of build-test here; SINTER_CMAKE_ARGS adds options for CMake; arguments go to ctest (scripts/test.sh -R conv2d).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

set_build_folder build-test
install_packages "${build_packages[@]}" "${example_packages[@]}" "${test_packages[@]}"
say "building Sinter and its tests in ${build#"$root"/} (several minutes the first time)"
configure "$build" -DSINTER_BUILD_TESTS=ON
cmake --build "$build"

say "running the tests"
report=$build/test-report.xml
rm -f "$report"
status=0
ctest --test-dir "$build" -j "$(nproc)" --timeout 600 --output-on-failure --output-junit "$report" "$@" || status=$?

count() { sed -n "s/^.*<testsuite[^>]*[^a-z]$1=\"\([0-9]*\)\".*$/\1/p; s/^[[:space:]]*$1=\"\([0-9]*\)\".*$/\1/p" "$report" | head -n 1; }
total=$(count tests) failed=$(count failures) skipped=$(($(count skipped) + $(count disabled)))
if [ -z "$total" ] || [ "$total" -eq 0 ]; then
  echo "no test was run" >&2
  exit 1
fi
echo "$((total - failed - skipped)) passed, $failed failed, $skipped skipped"
exit "$status"
