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
# One more at once than there are processors: many wait for other processes, or for a time limit that they are about.
ctest --test-dir "$build" -j "$(($(nproc) + 1))" --timeout 600 --output-on-failure --output-junit "$report" \
  --test-output-size-passed 1000000 --test-output-size-failed 1000000 "$@" || status=$?

# Passed, failed and skipped: of a program of GoogleTest each of its tests, of others the whole.
counts=$(awk '
  /<testcase / { match($0, / status="[a-z]*"/); state = substr($0, RSTART + 9, RLENGTH - 10); inner = 0; broken = state == "fail" }
  match($0, /\[  (PASSED|FAILED|SKIPPED)  ?\] [0-9]+ tests?[.,]/) {
    split(substr($0, RSTART, RLENGTH), word, " +")
    count[word[2]] += word[4]; inner = 1
    if (word[2] == "FAILED") broken = 0
  }
  /<\/testcase>/ {
    if (broken) ++count["FAILED"]
    else if (!inner) ++count[state == "run" ? "PASSED" : "SKIPPED"]
  }
  END { print count["PASSED"] + 0, count["FAILED"] + 0, count["SKIPPED"] + 0 }' "$report")
read -r passed failed skipped <<<"$counts"
if [ $((passed + failed + skipped)) -eq 0 ]; then
  echo "no test was run" >&2
  exit 1
fi
echo "$passed passed, $failed failed, $skipped skipped"
exit "$status"
