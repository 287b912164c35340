#!/usr/bin/env bash
# Runs the test programs of a build in a few processes each, as many at once as there are processors. CTest starts a process
# for every test, which under sanitizers takes longer than most tests do. Tests that fork are left to it: a process that has run
# others has threads, and much memory to copy. Usage: test_programs.sh <build folder> [tests to leave out, as for --gtest_filter]
set -euo pipefail
build=$(cd "$1" && pwd) without=${2:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# run <program> <part>: one line, and all that a part says if it fails.
run() {
  local name=$1 part=$2 log="$work/$1-$2" code=0
  (cd "$work" && GTEST_TOTAL_SHARDS=$parts GTEST_SHARD_INDEX=$part timeout 1800 "$build/tests/$name" --gtest_brief=1 --gtest_filter="-$without") >"$log" 2>&1 || code=$?
  if [ $code != 0 ] || ! grep -q '^\[  PASSED  \]' "$log"; then
    echo "$name, part $((part + 1)) of $parts, FAILED with exit code $code:" && tail -n 200 "$log"
    return 1
  fi
  echo "$name, part $((part + 1)) of $parts: $(sed -n 's/^\[  PASSED  \] \(.*\)\.$/\1/p' "$log") passed, $(sed -n 's/^\[  SKIPPED \] \([0-9]* tests*\).*/\1/p' "$log" | grep . || echo none) skipped"
}
export -f run
export build without work parts=4
for program in nn ops core processes passes examples autograd; do  # the longest first
  [ ! -x "$build/tests/${program}_test" ] || for part in 0 1 2 3; do echo "${program}_test $part"; done
done | xargs -P "$(nproc)" -L 1 bash -c 'run "$@"' run
