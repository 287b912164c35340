#!/usr/bin/env bash
# Builds and runs the project outside the tree, tests/consumer, in the ways in which users have Sinter: installed, shared and
# static, by find_package(); and as a part of their project. Their own flags differ from Sinter's.
# Usage: consumers.sh <a build folder with the shared library> [all]
#   The static library is made with the options of that build, for the CPU alone, in a folder beside it, <build folder>-static:
#   for ccache it is the same. "all" adds Sinter as a part of the project, which compiles it twice, once without optimisation.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$(cd "$1" && pwd) extent=${2:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=1
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi

# quietly <command>...: shows what it says only if it fails.
quietly() {
  "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
}

# consumer <way> <kind> <build type> <processor> <options for CMake>...: built for that processor, and run.
consumer() {
  local way=$1 kind=$2 type=$3 processor=$4 start=$SECONDS
  shift 4
  rm -rf "$work/consumer"
  # Its kernels for GPUs are compiled elsewhere.
  quietly cmake -S tests/consumer -B "$work/consumer" -G Ninja -DCMAKE_BUILD_TYPE="$type" -DCMAKE_CXX_FLAGS="-march=$processor" \
    -DCMAKE_CUDA_COMPILER=OFF "${launcher[@]}" "$@"
  grep -q "sinter::sinter is a ${kind^^}_LIBRARY" "$work/log" || { cat "$work/log" >&2; echo "expected a $kind library" >&2; return 1; }
  quietly cmake --build "$work/consumer"
  quietly "$work/consumer/consumer" "$work/consumer/custom_op/cube_op.so"
  quietly "$work/consumer/custom_op/custom_op" "$work/consumer/custom_op/cube_op.so"
  echo "$kind, $way, $type for $processor: $((SECONDS - start)) s"
}

# installed <kind> <build folder>: with flags that Sinter does not have. One folder for both kinds, so that ccache has the objects.
installed() {
  rm -rf "$work/prefix"
  quietly cmake --install "$2" --prefix "$work/prefix" --component development
  quietly cmake --install "$2" --prefix "$work/prefix" --component library
  for type in Release Debug; do
    for processor in x86-64-v3 x86-64; do
      consumer installed "$1" $type $processor -DCMAKE_PREFIX_PATH="$work/prefix"
    done
  done
}

installed shared "$build"

# cached <name>: how the build was configured.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
options=(-DBUILD_SHARED_LIBS=OFF -DSINTER_BUILD_TESTS=OFF -DSINTER_BUILD_EXAMPLES=OFF -DSINTER_BUILD_BENCHMARKS=OFF)
options+=(-DSINTER_CUDA=OFF)
for name in CMAKE_BUILD_TYPE CMAKE_CXX_COMPILER CMAKE_CXX_FLAGS SINTER_NATIVE SINTER_ARCH SINTER_WERROR; do
  value=$(cached $name)
  [ -z "$value" ] || options+=("-D$name=$value")
done
start=$SECONDS
quietly cmake -S . -B "$build-static" -G Ninja "${options[@]}"
quietly cmake --build "$build-static"
echo "the static library: $((SECONDS - start)) s"
installed static "$build-static"
# What it is linked with may be missing: the error names the package.
if cmake -S tests/consumer -B "$work/without" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_DISABLE_FIND_PACKAGE_spdlog=ON \
  >"$work/log" 2>&1 || ! grep -q 'apt-get install libspdlog-dev' "$work/log"; then
  cat "$work/log" >&2
  echo "expected an error that names libspdlog-dev" >&2
  exit 1
fi

[ "$extent" = all ] || exit 0
part=(-DSINTER_SOURCE="$PWD" -DSINTER_CUDA=OFF -DSINTER_NATIVE=OFF)
consumer 'a part of the project' static Debug x86-64 "${part[@]}"
consumer 'a part of the project' shared Release x86-64-v3 -DBUILD_SHARED_LIBS=ON "${part[@]}"
