#!/usr/bin/env bash
# scripts/dev.sh knows which tests are those of a file. Usage: dev_test.sh <scripts>
set -euo pipefail
dev=$1/dev.sh

expect() {  # <file> <words that its tests have>...
  local file=$1 told
  shift
  told="|$("$dev" which "$file")|"
  for part in "$@"; do
    case $told in *"|$part|"*) ;; *) echo "FAILED: the tests of $file: $told lacks $part"; exit 1 ;; esac
  done
}
expect ops/conv2d/conv2d.cpp '\.(Ops|Registry)/' '^ops\..*Conv2dThreads'  # samples of every op, and files of tests
expect ops/common/axis_taps.h '^ops\.'
expect core/op/call.cpp '^core\.'
expect tests/nn/metrics_test.cpp '^nn\..*MetricsTest'
expect docs/jobs.md '^docs\.'
expect scripts/dev.sh '^scripts\.'

[ "$("$dev" which README.md docs/jobs.md)" = '^docs\.' ] || { echo "FAILED: named twice"; exit 1; }
[ -z "$("$dev" which LICENSE)" ] || { echo "FAILED: LICENSE has tests"; exit 1; }
status=0
"$dev" nothing >/dev/null || status=$?
[ $status = 2 ] || { echo "FAILED: another command ends with $status"; exit 1; }
