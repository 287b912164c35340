#!/usr/bin/env bash
# Installs what is missing, builds Sinter and trains a ResNet on the handwritten digits that ship here.
# Options are the trainer's: scripts/train.sh --help. SINTER_CMAKE_ARGS adds options for CMake.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

install_packages "${build_packages[@]}" "${example_packages[@]}"
build=${SINTER_BUILD_DIR:-$root/build-train}
say "building Sinter in ${build#"$root"/} (a few minutes the first time)"
configure "$build" -DSINTER_BUILD_TESTS=OFF >"$build.log" 2>&1 || { cat "$build.log" >&2; exit 1; }
cmake --build "$build" --target train_resnet
rm -f "$build.log"
exec "$build/examples/train_resnet" "$@"
