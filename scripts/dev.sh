#!/usr/bin/env bash
# For changes to Sinter itself. Usage: scripts/dev.sh <command> [<argument>...]
#   build [<target>...]   builds all, or some targets, with the tests
#   test [<ctest option>...]   builds all and runs the tests of what was changed
#   format                formats what was changed
#   tidy                  looks through changed sources with clang-tidy (.clang-tidy has its checks)
#   spell                 looks for misspelt words (.codespellrc has the exceptions)
#   which [<file>...]     prints which tests are those of what was changed, or of these files, as ctest -R takes them
# What was changed is what differs from the branch main; SINTER_BASE names another commit. SINTER_BUILD_DIR is where to build, in place
# of build-test here, which scripts/test.sh uses too.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"

# changed <ending>...: files that differ from the base and are there, new ones included, with one of these endings.
changed() {
  local base
  base=$(git merge-base HEAD "${SINTER_BASE:-main}")
  { git diff --name-only --diff-filter=d "$base"; git ls-files --others --exclude-standard; } | grep -E "\.($(IFS='|'; echo "$*"))$" | sort -u || true
}

# tests_of: reads names of files, and writes what the names of their tests have, a line each.
tests_of() {
  local file part
  while read -r file; do
    part=${file#*/}
    case $file in
      ops/common/* | ops/norm/* | ops/CMakeLists.txt) echo '^ops\.' ;;
      ops/*/*)  # of the folder, and those of every op's samples
        { ls "tests/ops/${part%%/*}"*_test.cpp 2>/dev/null || true; } | tests_of
        echo '\.(Ops|Registry)/' ;;
      tests/docs/* | docs/* | *.md) echo '^docs\.' ;;
      tests/*_test.cpp) part=${part%%/*}; sed -nE "s/^(TYPED_)?TEST(_[FP])?\(([A-Za-z0-9]+),.*/^$part\\\\..*\3/p" "$file" ;;
      scripts/* | tests/scripts/*) echo '^scripts\.' ;;
      core/* | autograd/* | passes/* | nn/* | examples/*) echo "^${file%%/*}\." ;;
      tests/*/*) echo "^${part%%/*}\." ;;
    esac
  done | sort -u
}

build_all() {
  set_build_folder build-test
  install_packages "${build_packages[@]}" "${example_packages[@]}" "${test_packages[@]}"
  configure "$build" -DSINTER_BUILD_TESTS=ON >/dev/null
  cmake --build "$build" ${1:+--target "$@"}
}

command=${1:-help}
shift || true
case $command in
  build) build_all "$@" ;;
  test)
    tests=$(changed '[a-z]+' | tests_of | paste -sd '|')
    [ -n "$tests" ] || { say "nothing that has tests differs from ${SINTER_BASE:-main}"; exit 0; }
    build_all
    ctest --test-dir "$build" -j "$(nproc)" --timeout 600 --output-on-failure --no-tests=error -R "$tests" "$@"
    ;;
  format)
    install_packages "clang-format formatting"
    changed h cpp cu cuh | xargs -r clang-format -i
    ;;
  tidy)
    install_packages "clang-tidy mistakes in sources"
    set_build_folder build-test
    [ -f "$build/compile_commands.json" ] || { echo "expected a build in $build; scripts/dev.sh build makes one" >&2; exit 1; }
    # What GCC alone takes is left out: its precompiled headers, and warnings of its own.
    mkdir -p "$build/tidy"
    sed -E 's# -include [^ ]*cmake_pch\.hxx##; s# -(Winvalid-pch|fpch-preprocess|Werror)##g; s# -Wno-(restrict|stringop-overflow|maybe-uninitialized)##g' \
      "$build/compile_commands.json" >"$build/tidy/compile_commands.json"
    changed cpp | xargs -r -n 1 -P "$(nproc)" clang-tidy --quiet -p "$build/tidy"
    ;;
  spell)
    install_packages "codespell spelling"
    codespell
    ;;
  which)
    if [ $# -gt 0 ]; then printf '%s\n' "$@"; else changed '[a-z]+'; fi | tests_of | paste -sd '|'
    ;;
  *)
    sed -n 's/^# \{0,1\}//; 2,10p' "${BASH_SOURCE[0]}"
    [ "$command" = help ] || exit 2
    ;;
esac
