#!/usr/bin/env bash
# What --plan tells of a run, and which batch --batch auto takes under a pretended limit: it keeps to it, says so in a line, writes it
# into the recipe, takes the same on all ranks, and goes on with it. Usage: train_resnet_plan_test.sh <program> <folder>
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
program=$1 work=$2
command=("$program" --threads 1 --device cpu --seed 3)
begin_in "$work"
export SINTER_CACHE_DIR=$PWD/plans

# The batch that was told to be taken.
taken() { sed -nE 's/^--batch auto takes ([0-9]+) images.*/\1/p' out; }
# A number of MiB of a line of the plan's table.
mib() { awk -v name="$1" '$1 == name { print ($3 == "GiB" ? 1024 * $2 : $2); exit }' out; }

a_plan_tells_memory_and_time_and_writes_nothing() {
  run 0 --plan --batch 64 --epochs 2 --checkpoints run0 --save-weights w.safetensors --report r.json
  says "memory of a batch of 64"
  local row
  for row in parameters gradients optimiser arena inputs outputs workspaces; do says_like "^  $row .* exact$"; done
  for row in loader tests; do says_like "^  $row .* as measured$"; done
  awk -v all="$(mib all)" '$1 ~ /^(parameters|gradients|optimiser|arena|inputs|outputs|workspaces|loader|tests)$/ && $3 ~ /iB$/ { sum += ($3 == "GiB" ? 1024 * $2 : $2) }
       END { exit !(all > 0 && sum - all < 1 && all - sum < 1) }' out || fail "the rows do not add up to $(mib all) MiB"
  says_like "^the largest batch that fits: [0-9]+ "
  says_like "^ +[0-9.]+ GiB +[0-9]+ % +[0-9]+ %$"
  says_like "^  images/s +[0-9.]+, waiting for data [0-9]+ % of the time$"
  says_like "^  an epoch +[0-9.]+ s, 22 steps$"
  says_like "^  tests +[0-9.]+ s each, 2 of them$"
  says_like "^  the run "
  # The run itself: no more than is told, and no less than its step takes.
  local all step
  all=$(mib all) step=$(awk '$1 ~ /^(parameters|gradients|optimiser|arena|inputs|outputs|workspaces)$/ && $3 ~ /iB$/ { sum += $2 } END { print sum }' out)
  run 0 --batch 64 --epochs 2 --report peak.json
  sed -nE 's/.*"peak_gib": ([0-9.]+),/\1/p' peak.json | awk -v all="$all" -v step="$step" '{ exit !(1024 * $1 <= all + 0.1 && 1024 * $1 >= step - 0.3) }' ||
    fail "$step MiB of a step and $all in all were told, but $(grep peak_gib peak.json) were taken"
  [ ! -e run0 ] && [ ! -e w.safetensors ] && [ ! -e r.json ] || fail "a plan wrote files"
}

the_plan_of_a_gpu_needs_none() {
  command=("$program" --threads 1)
  run 0 --plan --for 1GiB
  says "mixed-f16, NHWC"
  says_like "^  arena .* at most$"
  says_like "^  workspaces +1.00 GiB  at most$"
  says "no batch fits"
  run 0 --plan --for 80GiB
  says_like "^  parameters .* exact$"
  says_like "^the largest batch that fits: 1408 "
  ! grep -q "images/s" out || fail "the pace of a GPU that is not there was told"
  run 0 --plan --for 80GiB --image-size 16 --decode gpu
  says_like "^the largest batch that fits: "
  command=("$program" --threads 1 --device cpu --seed 3)
}

auto_keeps_to_a_limit() {
  run 0 --batch auto --for 100MiB --epochs 1 --max-steps 2 --checkpoints run1 --write-recipe recipe.json
  local batch
  batch=$(taken)
  [ -n "$batch" ] && [ $((batch % 32)) = 0 ] && [ "$batch" -ge 32 ] && [ "$batch" -lt 1408 ] || fail "the batch is '$batch'"
  grep -qE "\"batch\": *\"?$batch" recipe.json || fail "the recipe lacks the batch"
  says "batch $batch,"
  # It fits, and the next does not.
  run 0 --plan --batch "$batch" --for 100MiB && says_like "^the largest batch that fits: $batch "
  awk -v all="$(mib all)" 'BEGIN { exit !(all <= 100) }' || fail "$(mib all) MiB are planned of 100"
  run 0 --plan --batch $((batch + 32)) --for 100MiB && says_like "^  all .* more than there is$"
  # More memory, larger batches; less than a step takes is told.
  run 0 --batch auto --for 60MiB --max-steps 1 && [ "$(taken)" -lt "$batch" ] || fail "60 MiB hold $(taken), 100 hold $batch"
  run 1 --batch auto --for 1MiB && complains "--batch auto: 1.0 MiB of memory do not hold a step of 2 images"
  # What is resumed keeps its batch, whatever there is now.
  run 0 --checkpoints run1 --resume --batch auto --for 60MiB --max-steps 4 && says "batch $batch,"
  [ -z "$(taken)" ] || fail "a run that is resumed took a batch of its own"
}

auto_takes_no_more_images_than_there_are() {
  run 0 --batch auto --for 8GiB --epochs 1 --max-steps 1 && says ": there are no more"
  [ "$(taken)" = 1408 ] || fail "of 1437 images it takes $(taken)"
}

ranks_take_one_batch() {
  grep -q -- --processes <("$program" --help) || return 0
  run 0 --processes 2 --batch auto --for 100MiB --max-steps 1 --epochs 1
  [ $(($(taken) % 32)) = 0 ] || fail "two ranks take $(taken)"
  says "$(($(taken) / 2)) images of each batch on each"
}

mistakes_are_refused() {
  run 2 --for 80GiB && complains "--for needs --plan or --batch auto"
  run 2 --plan --for 80 && complains "expected bytes as in 80GiB or 512MiB but got '80'"
  run 2 --plan --eager && complains "--plan is of jobs: leave --eager out"
  run 2 --batch auto --eager && complains "--batch auto is of jobs: leave --eager out"
  run 2 --batch most && complains "--batch"
}

a_plan_tells_memory_and_time_and_writes_nothing
the_plan_of_a_gpu_needs_none
auto_keeps_to_a_limit
auto_takes_no_more_images_than_there_are
ranks_take_one_batch
mistakes_are_refused
