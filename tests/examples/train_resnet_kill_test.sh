#!/usr/bin/env bash
# train_resnet is killed while it saves and stopped anywhere, again and again: each time there is a sound checkpoint that is no older
# than the last one known, and the run that was stopped ends with the weights and the log of one that was not, bit for bit.
# Usage: train_resnet_kill_test.sh <program> <folder> [<kills> [<stops> [<seed>]]]; scripts/nightly.sh has 300 and 20
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
program=$1 work=$2 kills=${3:-5} stops=${4:-3}
RANDOM=${5:-$$}
echo "seed $RANDOM"
begin_in "$work"

# begin ARGUMENTS...: starts the program, which is then $child; its output goes to `out` and `err`.
begin() {
  "$program" --threads 1 "$@" >out 2>err &
  child=$!
}
# after TEXT SECONDS/1000: waits so long after the program has said TEXT, or has ended.
after() {
  while kill -0 $child 2>/dev/null && ! grep -qs -- "$1" out; do sleep 0.01; done
  sleep "$(printf '%d.%03d' $(($2 / 1000)) $(($2 % 1000)))"
}
# The steps of the newest checkpoint in a folder, as the program itself tells them.
resumed_step() { sed -n 's/^resumed .* at step \([0-9]*\)$/\1/p' out; }

# Steps of two images, and a checkpoint after each: nearly all the time goes into saving.
a_checkpoint_is_there_after_every_kill() {
  local i step before last=0 leftovers=0 code=0
  newest() { ls killed | grep '^checkpoint-' | tail -n 1; }
  begin --batch 2 --epochs 1000 --checkpoints killed --checkpoint-every 1 --max-steps 5
  wait $child
  for ((i = 0; i < kills; ++i)); do
    begin --checkpoints killed --resume --checkpoint-every 1
    before=$(newest)
    while kill -0 $child 2>/dev/null && [ "$(newest)" = "$before" ]; do sleep 0.005; done
    sleep "0.$(printf %03d $((RANDOM % 200)))"
    kill -KILL $child 2>/dev/null || true
    { wait $child; } 2>/dev/null && fail "it ended by itself" || code=$?
    [ $code = 137 ] || fail "exit code $code in place of 137"
    step=$(resumed_step)
    [ -n "$step" ] || fail "kill $i: it did not resume"
    [ "$step" -ge "$last" ] && [ "$i" = 0 -o "$step" -gt "$last" ] || fail "kill $i: step $step, but $last was saved, and more"
    grep -q damaged out err && fail "kill $i: a checkpoint is damaged"
    last=$step
    [ -z "$(ls -A killed | grep '^\.' | grep -vx '.lock')" ] || leftovers=$((leftovers + 1))
  done
  timeout 300 "$program" --threads 1 --checkpoints killed --resume --evaluate >out 2>err || fail "the last checkpoint cannot be tested"
  echo "$kills kills, $leftovers of them within a save; step $last was reached"
}

a_stopped_run_ends_as_one_that_was_not() {
  local run="--epochs $((stops / 2 + 2)) --log-every 1" i signal
  begin $run --checkpoints whole --save-weights whole.safetensors
  wait $child
  begin $run --checkpoints stopped --checkpoint-every 2 --max-steps 1
  wait $child
  for ((i = 0; i < stops; ++i)); do
    begin --checkpoints stopped --resume --checkpoint-every 2 --log-every 1 --save-weights stopped.safetensors
    after '^resumed ' $((100 + RANDOM % 500))
    signal=$([ $((RANDOM % 2)) = 0 ] && echo KILL || echo TERM)
    kill -$signal $child 2>/dev/null || fail "stop $i came too late"
    { wait $child; } 2>/dev/null || true
  done
  begin --checkpoints stopped --resume --checkpoint-every 2 --log-every 1 --save-weights stopped.safetensors
  wait $child || fail "the rest of the run"
  cmp whole.safetensors stopped.safetensors || fail "other weights"
  diff <(numbers whole) <(numbers stopped) >differences || fail "another log: $(head -n 4 differences)"
  echo "$stops stops; the last at step $(resumed_step)"
}

# However much room there is for a file: the run goes on to its end, says what is not saved, and what was saved is sound.
a_full_disk_ends_nothing() {
  local blocks code sizes="0 4 64 1056 1100"
  [ "$kills" -lt 100 ] || sizes="0 1 2 4 8 64 512 1056 1100"
  for blocks in $sizes; do  # of 1 KB
    rm -rf full
    (
      begin --batch 64 --epochs 1 --checkpoints full --max-steps 2 --checkpoint-every 1
      wait $child
      ulimit -f $blocks
      code=0
      timeout 300 "$program" --threads 1 --checkpoints full --resume --max-steps 4 --checkpoint-every 1 >/dev/null 2>"$work/../full_err" || code=$?
      [ $code = 1 ] || [ $code = 0 ] || exit 3
    ) || fail "with $blocks KB it ended otherwise than with an error"
    begin --checkpoints full --resume --max-steps 6
    wait $child || fail "with $blocks KB: nothing to resume from"
    [ "$(resumed_step)" -ge 2 ] || fail "with $blocks KB: step $(resumed_step)"
  done
}

for test in a_checkpoint_is_there_after_every_kill a_stopped_run_ends_as_one_that_was_not a_full_disk_ends_nothing; do
  rm -f out err
  $test
  echo "$test: passed"
done
