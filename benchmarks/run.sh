#!/usr/bin/env bash
# Runs every GPU benchmark and every peer on this machine and writes benchmarks/results/<gpu>.json.
# See README.md; --help lists the options.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
here=$root/benchmarks
build=$root/build-cuda
python=${PYTHON:-python3}
quick=() cifar='' epochs=30 seeds=(0 1 2) compile=1

usage() {
  cat <<TEXT
Usage: benchmarks/run.sh [options]
  --quick        a few cases of everything; the result goes to the build folder only
  --cifar DIR    also train on CIFAR-10, a folder with train/<class>/*.jpg and test/<class>/*.jpg
  --epochs N     of that training (30)
  --build DIR    where Sinter is or will be built ($build)
  --no-build     run what is there
The environment variable PYTHON names the interpreter whose PyTorch is the peer (python3).
TEXT
}

while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=(--quick) ;;
    --cifar) cifar=${2:?--cifar needs a folder}; shift ;;
    --epochs) epochs=${2:?--epochs needs a number}; shift ;;
    --build) build=${2:?--build needs a folder}; shift ;;
    --no-build) compile=0 ;;
    --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

if [ "$compile" = 1 ]; then
  cmake --preset cuda -S "$root" -B "$build" -DSINTER_BUILD_BENCHMARKS=ON
  cmake --build "$build"
fi

rows=$(mktemp -d)
trap 'rm -rf "$rows"' EXIT
failed=()

# run NAME COMMAND...: a program that fails is remembered, the others still run.
run() {
  local name=$1
  shift
  printf '\n== %s\n' "$name"
  local code=0
  "$@" || code=$?
  [ $code = 0 ] || failed+=("$name (exit code $code)")
}

# ---- Sinter
for program in "$build"/benchmarks/*_benchmark; do
  name=$(basename "$program" _benchmark)
  case $name in *_cpu) continue ;; esac
  run "$name" "$program" --json "$rows/sinter_$name.json" "${quick[@]}"
done

# ---- PyTorch
if missing=$("$python" -c 'import torch; assert torch.cuda.is_available(), "its torch sees no CUDA device"' 2>&1); then
  for peer in "$here"/peers/torch_*.py; do
    name=$(basename "$peer" .py)
    case $name in torch_models | torch_cifar | *_cpu) continue ;; esac
    run "$name" "$python" "$peer" --json "$rows/peer_$name.json" "${quick[@]}"
  done
else
  printf '\n== skipped all peers: %s: %s\n' "$python" "${missing##*$'\n'}"
  python_missing=1
fi

# ---- training on CIFAR-10
if [ -z "$cifar" ]; then
  printf '\n== skipped cifar10: no --cifar DIR\n'
else
  run cifar10 "$here/cifar10.sh" "$build" "$cifar" "$epochs" "$rows" "${seeds[@]}"
  [ -n "${python_missing:-}" ] ||
    run torch_cifar "$python" "$here/peers/torch_cifar.py" "$cifar" --epochs "$epochs" --seeds "${seeds[@]}" \
      --json "$rows/peer_cifar10.json" "${quick[@]}"
fi

results=$here/results
[ ${#quick[@]} = 0 ] || results=$build/benchmarks/results
commit=$(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)
"$python" "$here/collect.py" "$rows" "$results" --commit "$commit"
if [ ${#failed[@]} -gt 0 ]; then
  printf '\nfailed: %s\n' "${failed[@]}" >&2
  exit 1
fi
