#!/usr/bin/env bash
# --plan and --batch auto of train_insightface, as tests/examples/train_resnet_plan_test.sh has them of train_resnet.
# Usage: train_insightface_plan_test.sh <program> <folder>
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
program=$1 work=$2
command=("$program" --threads 1 --seed 3 --synthetic 60 --backbone mbf --dims 32)
begin_in "$work"
export SINTER_CACHE_DIR=$PWD/plans

a_plan_of_a_gpu_needs_none() {
  run 0 --plan --for 40GiB --checkpoints run0
  says_like "^  parameters .* exact$"
  says_like "^  workspaces +1.00 GiB  at most$"
  says_like "^the largest batch that fits: [0-9]+ "
  [ ! -e run0 ] || fail "a plan wrote files"
}

auto_keeps_to_a_limit() {
  run 0 --device cpu --batch auto --for 1500MiB --max-steps 1 --checkpoints run1
  local batch
  batch=$(sed -nE 's/^--batch auto takes ([0-9]+) images.*/\1/p' out)
  [ -n "$batch" ] && [ $((batch % 32)) = 0 ] || fail "the batch is '$batch'"
  run 0 --device cpu --plan --for 1500MiB --batch "$batch" && says_like "^the largest batch that fits: $batch "
  run 0 --checkpoints run1 --resume --batch auto --max-steps 1 && says_like "batch $batch,"
}

mistakes_are_refused() {
  run 2 --plan --eager && complains "--plan is of jobs: leave --eager out"
  command=("$program")
  run 2 --plan --embed photos --output o.csv --load-weights w.safetensors && complains "--plan is of training: leave --embed out"
}

a_plan_of_a_gpu_needs_none
auto_keeps_to_a_limit
mistakes_are_refused
