#!/usr/bin/env bash
# Where a script cannot build, such as in a tree that is read-only, one line says how it builds elsewhere.
# Usage: build_folder_test.sh <scripts>
set -euo pipefail
for script in train test; do
  code=0
  said=$(SINTER_BUILD_DIR=/dev/null/build "$1/$script.sh" 2>&1) || code=$?
  if [ "$code" != 1 ] || [ "$(wc -l <<<"$said")" != 1 ] || ! grep -q 'expected a folder to build in but /dev/null/build .*SINTER_BUILD_DIR=' <<<"$said"; then
    printf '%s.sh ended with %s and said:\n%s\n' "$script" "$code" "$said" >&2
    exit 1
  fi
done
