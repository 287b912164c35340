#!/usr/bin/env bash
# Installs what is missing, builds Sinter and trains a ResNet on the handwritten digits that ship here.
# Options are the trainer's: scripts/train.sh --help. SINTER_BUILD_DIR is where to build, in place of build-train here;
# SINTER_CMAKE_ARGS adds options for CMake.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

set_build_folder build-train
install_packages "${build_packages[@]}" "${example_packages[@]}"
say "building Sinter in ${build#"$root"/} (a few minutes the first time)"
configure "$build" -DSINTER_BUILD_TESTS=OFF >"$build/configure.log" 2>&1 || { cat "$build/configure.log" >&2; exit 1; }
cmake --build "$build" --target train_resnet
exec -a "$0" "$build/examples/train_resnet" "$@"  # which then says "scripts/train.sh --help"
