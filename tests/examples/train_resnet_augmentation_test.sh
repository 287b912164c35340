#!/usr/bin/env bash
# The options of augmentation as a user gives them: each changes the run, learns, and goes on bit for bit where it was stopped;
# steps as a job and eager ones see the same images. Usage: train_resnet_augmentation_test.sh <program> <folder>
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/digits.sh"
export SINTER_DETERMINISTIC=1 COLUMNS=300  # lines are not broken; on a GPU, the fastest plans of a convolution may sum in any order
program=$1 work=$2
rm -rf "$work"
mkdir -p "$work"
cd "$work"
export SINTER_CACHE_DIR=$PWD/plans  # others who measure at the same time must not change the plans, which bits depend on
few_digits few 352 96  # 22 steps an epoch
run() { "$program" --data few --threads 1 --seed 4 --batch 16 --epochs 2 "$@" 2>/dev/null; }

# The training loss of the first and of the second epoch.
losses() { sed -nE 's/^epoch +[12]\/2 +loss ([0-9.]+) .*/\1/p' "$1"; }

number=0
for options in "--mixup 0.2" "--cutmix 1" "--random-erasing 0.5" "--color-jitter 0.4,0.4,0,0" "--randaugment 2,9" \
  "--mixup 0.2 --cutmix 1 --random-erasing 0.25 --randaugment 2,5" \
  "--augment timm-rand:5,0.5+blur:0.3 --repeated-augmentation 3 --rotation 5"; do
  number=$((number + 1))
  read -ra words <<<"$options"
  run "${words[@]}" --save-weights whole.safetensors >whole.log
  grep -q '^  augment  [a-z]' whole.log || { echo "$options: the start of the run does not tell it"; cat whole.log; exit 1; }
  mapfile -t loss < <(losses whole.log)
  [ "${#loss[@]}" = 2 ] && awk -v a="${loss[0]}" -v b="${loss[1]}" 'BEGIN { exit !(b < a) }' ||
    { echo "$options: the loss does not fall: ${loss[*]}"; exit 1; }

  # Stopped in both epochs, gone on with without the options, by other numbers of workers.
  run "${words[@]}" --checkpoints "run$number" --max-steps 9 >/dev/null
  run --checkpoints "run$number" --resume --max-steps 31 --workers 2 >middle.log
  grep -q 'resumed .* at step 9' middle.log || { echo "$options: the run did not go on from step 9"; exit 1; }
  run --checkpoints "run$number" --resume --workers 0 --save-weights resumed.safetensors >resumed.log
  cmp whole.safetensors resumed.safetensors || { echo "$options: the resumed run ended with other weights"; exit 1; }
  diff <(losses whole.log | tail -n 1) <(losses resumed.log | tail -n 1)
  message=$("$program" --checkpoints "run$number" --resume --epochs 3 --mixup 0.9 2>&1 >/dev/null) &&
    { echo "$options: another --mixup was not refused"; exit 1; }
  grep -q -- '--mixup .* -> 0.9' <<<"$message" || { echo "$options: $message"; exit 1; }
  mv whole.safetensors "whole$number.safetensors"
done
[ "$(sha256sum whole?.safetensors | cut -d' ' -f1 | sort -u | wc -l)" = 7 ] || { echo "an option changes nothing"; exit 1; }

# Each of the others changes the first steps.
number=0
for options in "" "--augment trivialaugment" "--augment randaugment:2,9" "--augment autoaugment-imagenet" "--augment autoaugment-cifar10" \
  "--augment autoaugment-svhn" "--augment augmix" "--augment 3augment" "--augment blur:1" "--vertical-flip" "--rotation 20" \
  "--repeated-augmentation 3"; do
  number=$((number + 1))
  read -ra words <<<"$options"
  run "${words[@]}" --max-steps 2 --save-weights "short-$number.safetensors" >short.log
  [ $number = 1 ] || grep -qE "^  (augment  augment ${words[1]:-none}|images .*(upside down|turned by|times))" short.log ||
    { echo "$options: the start of the run does not tell it"; cat short.log; exit 1; }
done
[ "$(sha256sum short-*.safetensors | cut -d' ' -f1 | sort -u | wc -l)" = 12 ] || { echo "an option changes nothing"; exit 1; }
# --randaugment is the same as that policy by name.
run --randaugment 2,9 --max-steps 2 --save-weights same.safetensors >/dev/null
tensors() { tail -c +$(($(od -An -tu8 -N8 "$1") + 9)) "$1"; }
cmp <(tensors same.safetensors) <(tensors short-3.safetensors) || { echo "--randaugment and --augment randaugment differ"; exit 1; }

# Eager steps draw what a job's steps draw.
run --mixup 0.2 --cutmix 1 --randaugment 2,5 --max-steps 3 --checkpoints job >/dev/null
run --mixup 0.2 --cutmix 1 --randaugment 2,5 --max-steps 3 --checkpoints eager --eager >/dev/null
cmp job/checkpoint-00000001/epoch_ranks.safetensors eager/checkpoint-00000001/epoch_ranks.safetensors ||
  { echo "eager steps saw other images"; exit 1; }

# In mixed precision targets are 16-bit probabilities.
run --mixup 0.2 --precision mixed-bf16 --max-steps 3 | tail -n 1 | grep -q '^stopped' || { echo "mixed precision fails"; exit 1; }

message=$("$program" --mixup 0.2 --batch 1 2>&1 >/dev/null) && { echo "a batch of one was not refused"; exit 1; }
grep -q -- '--mixup and --cutmix mix images of a batch, but --batch is 1' <<<"$message" || { echo "$message"; exit 1; }
