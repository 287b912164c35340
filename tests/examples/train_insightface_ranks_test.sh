#!/usr/bin/env bash
# train_insightface as several processes, each with its part of the centres: the loss of one process, one voice and one set of files,
# checkpoints for any number of processes, honest exit codes. Usage: train_insightface_ranks_test.sh <program> <folder>
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
program=$1 work=$2
command=("$program" --threads 1)
begin_in "$work"

# The losses that a folder logged, and whether those of two are alike.
losses() { sed -nE 's/.*"train\/loss": ?([0-9.]+).*/\1/p' "$1/scalars.jsonl"; }
alike() {
  [ -n "$(losses "$1")" ] || fail "no losses in $1"
  paste <(losses "$1") <(losses "$2") | awk -v t="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > t * $1) exit 1 }' ||
    fail "losses differ: $(paste <(losses "$1") <(losses "$2"))"
}

people people
# 130 images of 13 identities, which neither 2 nor 3 divides: 10 steps an epoch.
small="$small_backbone --dims 8 --image-size 16 --batch 12 --lr 0.02 --log-every 1 --sync-batch-norm --workers 0"

several_train_as_one() {
  run 0 --synthetic 13 $small --epochs 1 --log-dir one --max-steps 4
  run 0 --synthetic 13 $small --epochs 1 --log-dir two --max-steps 4 --processes 2 --verify people --verify-every 2 \
    --report two.json --save-weights two.safetensors --rank-timeout 300
  says_like '^  ranks    2 \(.*\), 6 images of each batch and about 6 identities on each$'
  [ "$(grep -c '^step 2  people' out)" = 1 ] || fail "not one voice"
  [ -s two/roc-people.csv ] || fail "no curve"
  ! grep -E "warning|error|rank 1" err || fail "complaints"
  [ "$(value two.json processes)" = 2 ] || fail "the report does not say 2"
  [ -s two.safetensors ] || fail "no weights"
  alike one two 2e-3
  run 0 --synthetic 13 $small --epochs 1 --log-dir eager --max-steps 4 --processes 2 --eager
  alike one eager 2e-3
}

# Of a network of InsightFace's width, whose gradients are summed in several buckets.
so_does_a_wide_network() {
  run 0 --synthetic 13 $small --width 64 --epochs 1 --max-steps 2 --log-dir one-wide
  run 0 --synthetic 13 $small --width 64 --epochs 1 --max-steps 2 --log-dir two-wide --processes 2
  alike one-wide two-wide 2e-3
}

# Five steps of two batches each, whole, so that ranks are held to have the same weights and averages at the end.
so_do_batches_of_a_step() {
  local several="--synthetic 13 $small --epochs 1 --accumulate 2 --optimizer adamw --lr 0.001 --ema 0.9"
  run 0 $several --log-dir one-of-two
  run 0 $several --log-dir two-of-two --processes 2
  alike one-of-two two-of-two 2e-3
  run 0 $several --log-dir eager-of-two --processes 2 --eager --verify people
  says_like '^step 5  people'
  alike one-of-two eager-of-two 2e-3
}

# What three compare in parts is what one compares: the same weights, and distances to some digits. Eleven pairs make parts of 3, 4
# and 4.
pairs_are_shared_out() {
  local i key within
  for i in 1 2 3 4; do printf "ann/$i.pgm ann/%d.pgm 1\neve/$i.pgm bob/%d.pgm 0\nbob/$i.pgm ann/$i.pgm 0\n" $((i % 4 + 1)) $((5 - i)); done | head -n 11 >people/some.lst
  run 0 --synthetic 13 $small --epochs 1 --processes 3 --verify people --verify people/some.lst --verify-every 0 --log-dir three-parts \
    --report three.json --save-weights three.safetensors
  run 0 --evaluate --load-weights three.safetensors --verify people --verify people/some.lst --report one.json
  while read -r key within; do
    paste <(value one.json "$key") <(value three.json "$key") |
      awk -v t="$within" '{ d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > t * $1) exit 1 } END { exit NR == 0 }' ||
      fail "$key: $(value one.json "$key" | paste -sd ' ') and $(value three.json "$key" | paste -sd ' ')"
  done <<<$'pairs 0\nauc 0.02\nxnorm 1e-3\nbalanced_accuracy 0.06'  # a pair on a threshold, or none
}

checkpoints_know_no_number_of_processes() {
  run 0 --synthetic 13 $small --epochs 2 --checkpoints three --max-steps 5 --processes 3
  run 0 --synthetic 13 $small --epochs 2 --checkpoints alone --max-steps 8
  local processes
  for processes in 1 2; do
    cp -r three "on-$processes"
    run 0 --checkpoints "on-$processes" --resume --max-steps 8 --processes "$processes"
    says_like 'resumed .* at step 5'
    [ "$(value "$(latest "on-$processes")" step)" = 8 ] || fail "not at step 8"
    alike alone "on-$processes" 5e-3
  done
}

# 240 identities: one process samples among all, three among 80 each.
so_do_those_of_a_part_of_the_centres() {
  run 0 --synthetic 240 $small --sample-rate 0.2 --epochs 1 --optimizer adamw --lr 0.001 --accumulate 2 --checkpoints part --max-steps 3 --processes 3
  local processes
  for processes in 1 2; do
    cp -r part "part-$processes"
    run 0 --checkpoints "part-$processes" --resume --max-steps 5 --processes "$processes"
    says_like 'resumed .* at step 3'
  done
  # Of 30 identities one process takes 12 in a step; each of three has 10, and takes all.
  run 0 --synthetic 30 $small --sample-rate 0.1 --epochs 1 --checkpoints whole --max-steps 2
  cp -r whole whole-3
  run 0 --checkpoints whole-3 --resume --max-steps 4 --processes 3
  cp -r whole-3 whole-1
  run 0 --checkpoints whole-1 --resume --max-steps 6
  says_like 'resumed .* at step 4'
}

a_signal_ends_all() {
  "$program" --threads 1 --processes 2 --synthetic 13 $small --epochs 500 --checkpoints stopped >out 2>err &
  local main=$! code=0
  for _ in $(seq 300); do
    [ -n "$(find stopped -name state.json 2>/dev/null)" ] && break
    sleep 0.1
  done
  kill -TERM $main
  wait $main || code=$?
  [ "$code" = 143 ] || fail "exit code $code after SIGTERM"
  says_like "^stopped; go on with --checkpoints stopped --resume$"
}

mistakes_are_one_line() {
  run 1 --synthetic 13 --batch 12 --image-size 16 --processes 5
  complains_like "batch 12: 5 processes cannot share it equally"
  run 2 --synthetic 13 --processes 2 --gpus 2
  complains_like "processes and --gpus cannot both be given"
  run 2 --embed people --output x.csv --load-weights two.safetensors --processes 2
  complains_like "embed is of one process"
}

several_train_as_one
so_does_a_wide_network
so_do_batches_of_a_step
pairs_are_shared_out
checkpoints_know_no_number_of_processes
so_do_those_of_a_part_of_the_centres
a_signal_ends_all
mistakes_are_one_line
echo passed
