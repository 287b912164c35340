#!/usr/bin/env bash
# The speed run on a tiny data set, as a user meets it.
# Usage: speedrun_test.sh <program> <folder>
set -euo pipefail
program=$1 work=$2
rm -rf "$work"
mkdir -p "$work"
cd "$work"
export SINTER_CACHE_DIR=$PWD/plans  # others who measure at the same time must not change the plans, which bits depend on
fail() { echo "$1"; exit 1; }
run() { "$program" "$@" --device cpu >out.log 2>errors.log; }

# Pictures of 32 x 32 pixels in two colours; the brighter half tells the class.
picture() {
  printf 'P6\n32 32\n255\n'
  for i in $(seq 32); do head -c 96 /dev/zero | tr '\0' "$([ $(( (i <= 16) == $1 )) = 1 ] && echo '\300' || echo "\\$(($2 % 7 + 1))0")"; done
}
for split in train test; do
  for class in 0 1; do
    mkdir -p data/$split/class$class
    for n in $(seq 16); do picture $class $n >data/$split/class$class/$n.ppm; done
  done
done

small="data --width 2 --batch 16"
run $small --epochs 4 --runs 2 --whole || fail "it failed: $(cat errors.log)"
grep -Eq '^run 2: [0-9.]+ % in [0-9.]+ s$' out.log || fail "the second run is not told: $(cat out.log)"
grep -Eq '^mean of 2: [0-9.]+, deviation [0-9.]+ %; [0-9.]+, deviation [0-9.]+ s$' out.log || fail "no mean"
grep -Eq '^whole process: [0-9.]+ s$' out.log || fail "the whole is not told"
for part in 'process start' decoding whitening plans training evaluation; do
  grep -Eq "^  $part +[0-9.]+ s  \|" out.log || fail "no bar for $part: $(cat out.log)"
done

# A seed decides a run, and every part can be left out.
run $small --epochs 2 --seed 3 && grep '^run 1' out.log | cut -d' ' -f3 >first.log
run $small --epochs 2 --seed 2 --runs 2 && grep '^run 2' out.log | cut -d' ' -f3 | cmp - first.log || fail "a seed gave two runs"
for part in whitening freezing identity smoothing nesterov bias-rate mirror crops lookahead views; do
  run $small --epochs 0.5 --without $part || fail "not without $part: $(cat errors.log)"
done

# Mistakes take one line, and a hint.
mistake() {
  local code=0
  run "${@:3}" || code=$?
  [ $code = "$1" ] || fail "${*:3} ended with $code"
  grep -q -- "$2" errors.log || fail "${*:3} was told as: $(cat errors.log)"
}
mistake 2 'data.*missing' missing
mistake 2 'foo' $small --without foo
mistake 2 'did you mean --epochs' $small --epoch 3
mistake 2 'runs' $small --runs 0
mistake 1 'error: --batch 33: an epoch has only 32 pictures' data --batch 33
mkdir -p large/{train,test}/class
printf 'P6\n33 32\n255\n%*s' $((33 * 32 * 3)) '' >large/train/class/1.ppm
cp large/train/class/1.ppm large/test/class/1.ppm
mistake 1 'expected pictures of 32 x 32' large --batch 1
