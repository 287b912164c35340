# Shared by train.sh and test.sh: installs what is missing and configures the build. Sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# say WORDS...: in bold where it is read in a terminal.
say() { if [ -t 1 ]; then printf '\033[1m%s\033[0m\n' "$*"; else printf '%s\n' "$*"; fi; }

# install_packages "<package> <why>" ...: installs the Debian packages of the list that are missing.
install_packages() {
  local entry name missing=()
  for entry in "$@"; do
    name=${entry%% *}
    if ! dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed'; then
      missing+=("$name")
      say "missing: $name (${entry#* })"
    fi
  done
  [ ${#missing[@]} -eq 0 ] && return
  if ! command -v apt-get >/dev/null; then
    echo "This script installs packages with apt-get, which is not here. Please install the packages above by hand." >&2
    exit 1
  fi
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "Installing packages needs root. Please run as root: apt-get install ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  say "installing: ${missing[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# set_build_folder <name>: build=SINTER_BUILD_DIR, or <name> in this tree; it must be one that can be written.
set_build_folder() {
  build=${SINTER_BUILD_DIR:-$root/$1}
  if ! mkdir -p "$build" 2>/dev/null || ! [ -w "$build" ]; then
    echo "expected a folder to build in but $build cannot be written; SINTER_BUILD_DIR=<folder> $0 builds elsewhere" >&2
    exit 1
  fi
}

# Options for CMake: the CUDA backend for this machine's GPU if there is one and the toolkit is here, else the CPU alone.
# (A toolkit without a GPU is left aside: its build takes minutes and could not run.)
if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; then
  device_options=(-DSINTER_CUDA=AUTO -DCMAKE_CUDA_ARCHITECTURES=native)
else
  device_options=(-DSINTER_CUDA=OFF)
fi

# configure <build folder> <options for CMake>...: SINTER_CMAKE_ARGS, a list of words, comes last.
configure() {
  local build=$1
  shift
  # shellcheck disable=SC2086
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "${device_options[@]}" "$@" ${SINTER_CMAKE_ARGS:-}
}

# What every build needs.
build_packages=(
  "g++ the C++ compiler"
  "cmake the build system"
  "ninja-build the build tool"
  "libeigen3-dev matrix products on the CPU"
  "libfmt-dev messages"
  "libspdlog-dev the log"
  "nlohmann-json3-dev headers of checkpoints"
  "libjpeg-dev reading images"
  "libpng-dev reading images"
  "libwebp-dev reading images"
  "zlib1g-dev reading gzip files"
  "libdeflate-dev reading masks"
  "libgloo-dev several processes"
)
# Where it is version 2, of which Sinter makes use.
if grep -qs '^VERSION_CODENAME=bookworm$' /etc/os-release; then build_packages+=("libdnnl-dev convolutions on the CPU"); fi
example_packages=("libcli11-dev options of the example programs")
test_packages=("libgtest-dev the tests" "procps processes that tests look for")
