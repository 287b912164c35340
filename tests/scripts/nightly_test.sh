#!/usr/bin/env bash
# scripts/nightly.sh tells what has run and how it ended, and fails if something did. The tools that it calls are made up.
# Usage: nightly_test.sh <scripts>
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

tool() {  # NAME LINE
  printf '#!/bin/sh\n%s\n' "$2" >"$work/$1"
  chmod +x "$work/$1"
}
expect() {  # CODE REGULAR-EXPRESSION...: its exit code, and lines that it says
  local expected=$1 code=0 said line
  shift
  said=$(PATH=$work:$PATH SINTER_BUILD_DIR=$work/build "$scripts/nightly.sh" 0 2>&1) || code=$?
  [ $code = "$expected" ] || { echo "FAILED: exit code $code in place of $expected: $said"; exit 1; }
  for line in "$@"; do grep -qE -- "^$line\$" <<<"$said" || { echo "FAILED: no line $line: $said"; exit 1; }; done
}
scripts=$1
tool dpkg-query 'echo install ok installed'
tool cmake :
tool ctest 'case "$*" in *" -N") printf "  Test   #1: long.well\n  Test #12: long.ill\n" ;; *long.ill*) exit 8 ;; esac'
expect 1 'long\.well +[0-9]+ s  exit code 0' 'long\.ill +[0-9]+ s  exit code 8' 'fuzz targets: not run .*'
tool ctest 'case "$*" in *" -N") printf "  Test #1: long.well\n" ;; esac'
expect 0 'long\.well +[0-9]+ s  exit code 0'
tool ctest :
expect 1 'no test has the label long'
