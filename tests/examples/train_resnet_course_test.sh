#!/usr/bin/env bash
# How the course of a run is chosen, as a user does it: losses and schedules learn and go on bit for bit where they were
# stopped, the plateau's state included; --patience ends a run. Usage: train_resnet_course_test.sh <program> <folder>
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/digits.sh"
export SINTER_DETERMINISTIC=1  # on a GPU, the fastest plans of a convolution may sum in any order
program=$1 work=$2
rm -rf "$work"
mkdir -p "$work"
cd "$work"
export SINTER_CACHE_DIR=$PWD/plans
few_digits few 352 96
run() { "$program" --data few --threads 1 --seed 3 "$@" 2>/dev/null; }

number=0
for options in "--schedule plateau --plateau-patience 0 --gamma 0.5 --lr 0.1 --warmup 0 --batch 16 --epochs 8" \
  "--batch 64 --epochs 4 --optimizer rmsprop --loss bce --bce-threshold 0.2 --mixup 0.2 --label-smoothing 0.1 --drop-path 0.3 --class-weights balanced" \
  "--batch 64 --epochs 4 --optimizer adam --schedule multi-step --milestones 1,2 --warmup-epochs 1 --zero-init-residual"; do
  number=$((number + 1))
  read -ra words <<<"$options"
  run "${words[@]}" --save-weights whole.safetensors --log whole$number.csv >whole.log
  stop=12
  [ "$number" = 1 ] && stop=120  # the plateau has reduced the rate by then
  run "${words[@]}" --checkpoints "run$number" --max-steps $stop >/dev/null
  run --checkpoints "run$number" --resume --save-weights resumed.safetensors >/dev/null
  cmp whole.safetensors resumed.safetensors || { echo "$options: the resumed run ended with other weights"; exit 1; }
done
# The test loss rises at some epoch, and the rate then halves.
rates=$(tail -n +2 whole1.csv | cut -d, -f3 | sort -u | wc -l)
[ "$rates" -ge 2 ] || { echo "the plateau never reduced the rate"; cat whole1.csv; exit 1; }

# A rate that changes nothing but the statistics of norms: the best test soon stays the best, and two more epochs end the run.
run --batch 64 --epochs 50 --patience 2 --lr 1e-9 --checkpoints ended >ended.log
best=$(sed -nE 's/^best test .* after epoch ([0-9]+)$/\1/p' ended.log)
epochs=$(grep -c '^epoch ' ended.log)
[ "$epochs" = $((best + 2)) ] && [ "$epochs" -lt 50 ] ||
  { echo "--patience 2 did not end the run two epochs after its best"; cat ended.log; exit 1; }
grep -q '^test accuracy' ended.log || { echo "a run that --patience ends is not complete"; exit 1; }
grep -q "^no better test for 2 epochs (--patience 2): the run ends$" ended.log || { echo "nothing tells why the run ends"; cat ended.log; exit 1; }
run --checkpoints ended --resume --epochs 60 >again.log
grep -q "the run has ended, with no better test for 2 epochs (--patience 2); --patience 0 --change-recipe trains on" again.log ||
  { echo "nothing tells how to go on"; cat again.log; exit 1; }
! grep -q '^epoch ' again.log || { echo "an ended run went on"; cat again.log; exit 1; }
