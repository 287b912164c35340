#!/usr/bin/env bash
# Programs that are started without standard input, output or error write nothing of what they print into their files.
# Usage: standard_files_test.sh <folder of programs> <folder>
set -euo pipefail
export CUDA_VISIBLE_DEVICES=
programs=$1 work=$2
rm -rf "$work"
mkdir -p "$work"
cd "$work"

fail() { echo "FAILED (closed: $closed): $*"; exit 1; }
# start ARGUMENTS...: runs a program with the descriptors in $closed closed.
start() {
  local code=0
  (
    case $closed in *0*) exec <&- ;; esac
    case $closed in *1*) exec >&- ;; *) exec >out ;; esac
    case $closed in *2*) exec 2>&- ;; *) exec 2>err ;; esac
    exec "$programs/$@"
  ) || code=$?
  [ $code = 0 ] || fail "exit code $code from $*"
}
# Nothing but what belongs there in a run's folder.
is_clean() {
  [ ! -s "$1/.lock" ] || fail "the lock holds: $(head -n 2 "$1/.lock")"
  ! grep -v '^{"step":' "$1/scalars.jsonl" || fail "scalars.jsonl"
  ! grep -rlaE 'million|epoch +1/|stopped; go on' "$1" || fail "text in files"
}

mkdir -p images/{a,b}
for class in a b; do { printf 'P5 16 16 255\n' && head -c 256 < <(yes "$class"); } >images/$class/1.pgm; done
for class in a b; do echo "$class/1.pgm,4,5,11,5,8,8,5,11,10,11"; done >points.csv
closed=none
start sinter_pack images packed
start sinter_align images points.csv aligned
for closed in 0 1 2 01 02 12 012; do
  start train_resnet --threads 1 --workers 0 --epochs 1 --batch 1400 --checkpoints "run$closed" --save-weights "w$closed"
  is_clean "run$closed"
  [ "$closed" = 0 ] || cmp w0 "w$closed" || fail "other weights"
  start sinter_pack images "packed$closed"
  cmp packed/train.rec "packed$closed/train.rec" || fail "other records"
  start sinter_align images points.csv "aligned$closed"
  diff -r aligned "aligned$closed" || fail "other faces"
  start sinter_convert "w$closed" "w$closed.pth"
  cmp w0.pth "w$closed.pth" || fail "other weights in PyTorch's format"
done
closed=012
start train_resnet --threads 1 --workers 0 --checkpoints run01 --resume --epochs 2
is_clean run01
start train_insightface --threads 1 --synthetic 12 --backbone iresnet18 --width 8 --dims 8 --image-size 16 --batch 10 --max-steps 1 --checkpoints faces
is_clean faces
if [ "${3:-0}" != 0 ]; then
  start train_resnet --threads 1 --workers 0 --epochs 1 --batch 1400 --processes 2 --checkpoints ranks
  is_clean ranks
fi
start first_steps
echo "all passed"
