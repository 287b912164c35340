# What .ci/run and .ci/release share. Sourced, not run, from the top of the tree.
source scripts/common.sh
started=${SINTER_CHECK_STARTED:-$(date +%s)}
stage() { say "== $* ($(($(date +%s) - started)) s)"; }

# clone_into <folder>: a clean clone of what is committed, where ccache finds again what it kept from other clones.
clone_into() {
  export CCACHE_BASEDIR=$1 CCACHE_NOHASHDIR=1
  git clone -q . "$1/clone"
  cd "$1/clone"
}

# The trainer, the tests and the packages are built with the same options, so that ccache has what one of them compiled for
# the next. Those under sanitizers are for this machine's processor.
same_options="-DSINTER_WERROR=ON -DSINTER_NATIVE=OFF -DSINTER_ARCH=x86-64-v3"
# The CUDA part is compiled and linked where nvcc is found; its tests are skipped and counted without a GPU. What does not
# run here need not be fast: optimising takes most of nvcc's time. (At the level "max", ptxas warns.)
cuda_options="-DSINTER_CUDA=AUTO -DCMAKE_CUDA_ARCHITECTURES=90"
if [[ $(nvidia-smi -L 2>/dev/null) != *GPU* && $(nvcc --help 2>/dev/null) == *--Ofast-compile* ]]; then
  cuda_options+=" -DCMAKE_CUDA_FLAGS=--Ofast-compile=mid -DCMAKE_CUDA_FLAGS_RELEASE=-O1"
fi

# build_consumer <prefix>: builds and runs the project outside the tree, with examples/custom_op, against the Sinter that is
# installed there.
build_consumer() {
  rm -rf "$work/consumer"
  cmake -S tests/consumer -B "$work/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$1" | grep 'sources of the op'
  cmake --build "$work/consumer"
  "$work/consumer/consumer" "$work/consumer/custom_op/cube_op.so"
  "$work/consumer/custom_op/custom_op" "$work/consumer/custom_op/cube_op.so"
}

# build_fuzzers: the readers of files under AddressSanitizer and UndefinedBehaviorSanitizer, and what feeds them.
build_fuzzers() {
  install_packages "clang fuzzing" "libclang-rt-dev fuzzing and its sanitizers"
  cmake --preset fuzz -DSINTER_CUDA=OFF >/dev/null
  cmake --build build-fuzz --target fuzzers
}
