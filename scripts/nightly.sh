#!/usr/bin/env bash
# Builds Sinter and runs what takes too long for every change: the tests with the label `long` (random cases by the thousand, signals,
# kills, faces in full width), and the fuzz targets if they are built. Ends with a table, and with 1 if something failed.
# Usage: scripts/nightly.sh [<minutes for each fuzz target>]; SINTER_BUILD_DIR is where to build, in place of build-test here.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
minutes=${1:-10}

set_build_folder build-test
install_packages "${build_packages[@]}" "${example_packages[@]}" "${test_packages[@]}"
configure "$build" -DSINTER_BUILD_TESTS=ON >/dev/null
cmake --build "$build"

table=() status=0
# story <name> <command>...: runs it, and adds a row to the table.
story() {
  local name=$1 begin=$SECONDS code=0
  shift
  say "$name"
  "$@" || code=$?
  [ $code = 0 ] || status=1
  table+=("$(printf '%-32s %6d s  exit code %d' "$name" $((SECONDS - begin)) $code)")
}

long=(ctest --test-dir "$build" -C long -L '^long$')
for name in $("${long[@]}" -N | sed -nE 's/^ *Test +#[0-9]+: //p'); do
  story "$name" "${long[@]}" -R "^$name\$" --no-tests=error --output-on-failure
done
[ ${#table[@]} -gt 0 ] || { echo "no test has the label long" >&2; exit 1; }
if [ -d "$root/build-fuzz/tests/fuzz" ] && [ "$minutes" != 0 ]; then
  story "fuzz targets, $minutes minutes each" "$root/.ci/fuzz.sh" "$root/build-fuzz" $((60 * minutes))
else
  table+=("fuzz targets: not run (cmake --preset fuzz && cmake --build build-fuzz --target fuzzers)")
fi
printf '%s\n' "${table[@]}"
exit $status
