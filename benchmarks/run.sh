#!/usr/bin/env bash
# Measures everything anew on this machine, in at most 25 minutes, and writes benchmarks/results/<gpu>.json.
# See README.md; --help lists the options.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
here=$root/benchmarks
build=$root/build-cuda
results=''
python=${PYTHON:-python3}
quick=() limited=1 cifar='' epochs=30 seeds=(0 1 2) compile=1 suites=() rows='' commit=''

usage() {
  cat <<TEXT
Usage: benchmarks/run.sh [options]
  --quick        a few cases of everything; the result goes to the build folder
  --no-limit     let every suite take the time that it takes: hours, if PyTorch's mode max-autotune compiles all networks
  --cifar DIR    also train on CIFAR-10, a folder with train/<class>/*.jpg and test/<class>/*.jpg
  --epochs N     of that training (30)
  --suite NAME   only this suite, may be given several times
  --rows DIR     keep the rows there, and join those that earlier runs left: a full run in pieces
  --results DIR  where the result goes ($here/results, or with --quick the build folder)
  --commit NAME  what was measured (what git says)
  --build DIR    where Sinter is or will be built ($build)
  --no-build     run what is there
The environment variable PYTHON names the interpreter whose PyTorch is the peer (python3).
TEXT
}

while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=(--quick) ;;
    --no-limit) limited=0 ;;
    --results) results=${2:?--results needs a folder}; shift ;;
    --cifar) cifar=${2:?--cifar needs a folder}; shift ;;
    --epochs) epochs=${2:?--epochs needs a number}; shift ;;
    --suite) suites+=("${2:?--suite needs a name}"); shift ;;
    --commit) commit=${2:?--commit needs a name}; shift ;;
    --rows) rows=${2:?--rows needs a folder}; shift ;;
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

if [ -z "$results" ]; then
  results=$here/results
  [ ${#quick[@]} = 0 ] || results=$build/benchmarks/results
fi
if [ -z "$rows" ]; then
  rows=$(mktemp -d)
  trap 'rm -rf "$rows"' EXIT
fi
mkdir -p "$rows"
failed=()

# run NAME COMMAND...: a program that fails is remembered, the others still run.
run() {
  local name=$1
  shift
  printf '\n== %s\n' "$name"
  local code=0
  "$@" || code=$?
  [ $code != 77 ] || exit 77  # no GPU
  [ $code = 0 ] || failed+=("$name (exit code $code)")
}

wants() {
  [ ${#suites[@]} = 0 ] || [[ " ${suites[*]} " == *" $1 "* ]]
}

# The peer of a suite, if it has one.
peer_of() {
  case $1 in
    copy | prelu | permute | batch_norm | matvec | conv2d | linear) echo torch_kernels ;;
    train_step) echo torch_train ;;
    infer) echo torch_infer ;;
    eager_overhead) echo torch_eager_overhead ;;
  esac
}

# Seconds for Sinter's program, and for its peer: 25 minutes together, as programs with few cases end earlier.
limits_of() {
  case $1 in
    train_step) echo 150 400 ;;
    infer) echo 130 220 ;;
    batch_norm | prelu) echo 30 80 ;;
    matvec | permute) echo 25 35 ;;
    sweep) echo 120 ;;
    *) echo 20 12 ;;
  esac
}

has_torch=1
if ! missing=$("$python" -c 'import torch; assert torch.cuda.is_available(), "its torch sees no CUDA device"' 2>&1); then
  has_torch=0
  printf '\n== skipping all PyTorch peers: %s: %s\n' "$python" "${missing##*$'\n'}"
fi

for program in "$build"/benchmarks/*_benchmark; do
  suite=$(basename "$program" _benchmark)
  case $suite in *_cpu | scaling) continue ;; esac
  wants "$suite" || continue
  read -r of_sinter of_peer <<<"$(limits_of "$suite")"
  limit=() peer_limit=()
  [ $limited = 0 ] || limit=(--seconds "$of_sinter") peer_limit=(--seconds "$of_peer")
  run "$suite" "$program" --json "$rows/sinter_$suite.json" "${quick[@]}" "${limit[@]}"
  peer=$(peer_of "$suite")
  if [ -n "$peer" ] && [ $has_torch = 1 ]; then
    options=("${quick[@]}" "${peer_limit[@]}")
    case $suite in
      train_step) options+=(--ahead 8) ;;  # as many as a GPU has memory for
      infer) options+=(--ahead 12) ;;
    esac
    run "$suite: $peer" "$python" "$here/peers/$peer.py" --suites "$suite" --json "$rows/peer_$suite.json" "${options[@]}"
  fi
done

# These run Sinter and PyTorch in turns.
few=() few_ops=() few_images=()
[ $limited = 0 ] || few=(--budget-seconds "$(limits_of sweep)")
if [ ${#quick[@]} -gt 0 ]; then
  few=(--cases 10 --compiled 0)
  few_ops=(--ops "add,sum,matmul,conv2d")
  few_images=(--images 10000 --steps 100)
fi
if wants sweep; then
  run sweep "$python" "$here/sweep.py" "$build" --rows "$rows" --quiet "${few[@]}"
fi
if wants faces; then
  run faces "$python" "$here/faces.py" "$build" --rows "$rows" "${few_images[@]}"
fi
if [[ " ${suites[*]} " == *" ops "* ]]; then  # has tables of its own: ops_speed.py
  run ops "$python" "$here/ops_speed.py" "$build" --rows "$rows" "${few_ops[@]}"
fi
if [[ " ${suites[*]} " == *" scaling "* ]]; then  # takes several GPUs
  run scaling "$python" "$here/scaling.py" "$build" --rows "$rows"
fi

if wants cifar10; then
  if [ -z "$cifar" ]; then
    printf '\n== skipping cifar10: no --cifar DIR\n'
  else
    run cifar10 "$python" "$here/cifar10.py" "$build" "$cifar" --epochs "$epochs" --seeds "${seeds[@]}" \
      --json "$rows/sinter_cifar10.json"
    if [ $has_torch = 1 ]; then
      run "cifar10: torch_cifar" "$python" "$here/peers/torch_cifar.py" "$cifar" --epochs "$epochs" \
        --seeds "${seeds[@]}" --json "$rows/peer_cifar10.json" "${quick[@]}"
    fi
  fi
fi

[ -n "$commit" ] || commit=$(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)
"$python" "$here/collect.py" "$rows" "$results" --commit "$commit"
if [ ${#failed[@]} -gt 0 ]; then
  printf '\nfailed: %s\n' "${failed[@]}" >&2
  exit 1
fi
