#!/usr/bin/env bash
# The folder in which train_resnet tells of a run: each step once however the run was stopped, and nothing that cannot be written
# goes unsaid. With Python and TensorBoard on the machine, that reads the same numbers. Usage: train_resnet_log_test.sh <program> <folder>
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$(dirname "${BASH_SOURCE[0]}")/digits.sh"
program=$1 work=$2
command=("$program" --threads 1 --data few --batch 8)
begin_in "$work"
few_digits few 352 96

# The steps, and the epochs, that a folder's scalars.jsonl has.
steps() { sed 's/^{"step":\([0-9]*\),.*/\1/' "$1/scalars.jsonl"; }
epochs() { sed -n 's/.*"epoch":\([0-9]*\)\.0,.*/\1/p' "$1/scalars.jsonl" | paste -sd ' '; }

a_run_explains_itself() {
  run 0 --epochs 2 --log-dir whole/deep --report report.json
  local file
  for file in scalars.jsonl run.json report.json curves.svg events.out.tfevents.*; do
    [ "$(find whole/deep -name "$file" | wc -l)" = 1 ] || fail "no $file"
  done
  cmp report.json whole/deep/report.json
  [ "$(steps whole/deep | paste -sd ' ')" = "$(seq 2 2 44 | paste -sd ' ') 44 $(seq 46 2 88 | paste -sd ' ') 88" ] || fail "other steps"
  [ "$(epochs whole/deep)" = "1 2" ] || fail "other epochs"
  local tag
  for tag in train/loss train/learning_rate train/images_per_second train/data_wait_share train/epoch_loss train/epoch_accuracy \
    test/loss test/accuracy memory/peak_bytes; do
    grep -q "\"$tag\":" whole/deep/scalars.jsonl || fail "no $tag"
  done
  grep -q '"model": "resnet20"' whole/deep/run.json && grep -q '"epochs": "2"' whole/deep/run.json || fail "no recipe"
  [ "$(grep -c '<path class="curve' whole/deep/curves.svg)" = 7 ] || fail "not two curves in two charts, a learning rate and a legend of two"
  grep -q '>epoch (.* in all)</text>' whole/deep/curves.svg || fail "curves.svg does not say how long it took"
  [ -z "$(find whole -name '.*')" ] || fail "a probe was left"
  run 0 --epochs 1 --log-dir rare --log-every 40 --precision mixed-f16
  [ "$(steps rare | paste -sd ' ')" = "40 44" ] || fail "not every 40th step"
  grep -q '"gradient_scale/scale":' rare/scalars.jsonl || fail "no scale"
}

a_resumed_run_logs_what_a_whole_one_does() {
  run 0 --epochs 2 --checkpoints stopped --max-steps 18
  run 0 --checkpoints stopped --resume --max-steps 44  # all but the test of an epoch
  run 0 --checkpoints stopped --resume
  diff <(numbers whole/deep) <(numbers stopped) || fail "other numbers"
  [ "$(grep -c '"command":' stopped/run.json)" = 3 ] || fail "run.json lacks a start"
  local before
  before=$(ls -l stopped)
  run 0 --checkpoints stopped --resume
  run 0 --checkpoints stopped --resume --evaluate
  [ "$(ls -l stopped)" = "$before" ] || fail "a run without a step has changed the folder"
}

a_killed_run_lacks_nothing() {
  "${command[@]}" --epochs 1000 --schedule constant --checkpoints killed --checkpoint-every 20 >out 2>err &
  local i
  for ((i = 0; i < 3000; ++i)); do
    grep -qs "^epoch   3/1000" out && break
    sleep 0.1
  done
  kill -KILL $!
  wait $! 2>/dev/null || true
  printf '{"step":1000000,"ti' >>killed/scalars.jsonl  # a line that was cut short
  run 0 --checkpoints killed --resume --epochs 1000 --max-steps 400
  local all
  all=$(steps killed | awk '$1 % 44 || !seen[$1]++')  # at the end of an epoch there are two records
  [ "$all" = "$(seq 2 2 400)" ] || fail "steps are missing or there twice: $(echo "$all" | paste -sd ' ')"
  [ "$(epochs killed)" = "1 2 3 4 5 6 7 8 9" ] || fail "other epochs: $(epochs killed)"
}

other_batches_go_on_behind_the_last_step() {
  run 0 --epochs 2 --checkpoints other --max-steps 44
  run 0 --checkpoints other --resume --batch 16 --change-recipe
  [ "$(epochs other)" = "1 2" ] || fail "other epochs: $(epochs other)"
  steps other | sort -nc || fail "steps are not in order"
}

what_cannot_be_written_is_refused() {
  local before
  before=$(ls -l whole/deep)
  run 1 --epochs 1 --log-dir whole/deep && complains "--log-dir whole/deep holds the log of another run"
  [ "$(ls -l whole/deep)" = "$before" ] || fail "the folder has changed"
  touch file
  run 1 --log-dir file && complains "--log-dir file is no folder"
  run 1 --log-dir file/x && complains "--log-dir file/x cannot be written: Not a directory"
  mkdir -p taken/curves.svg
  run 1 --log-dir taken && complains "--log-dir taken/curves.svg is a folder"
  run 2 --log-dir "" && complains "--log-dir: expected a name but got nothing"
  run 2 --log-every 5 && complains "--log-every needs --log-dir <folder> or --checkpoints <folder>"
  cp -r stopped damaged
  echo 'no JSON' >>damaged/scalars.jsonl
  run 1 --checkpoints damaged --resume --epochs 3
  complains "--checkpoints damaged has a log that cannot go on, move it away: [scalars] damaged/scalars.jsonl: line "
  [ "$(id -u)" = 0 ] && return  # to whom everything is writable
  mkdir readonly && chmod a-w readonly
  run 1 --log-dir readonly && complains "Permission denied"
}

a_full_disk_ends_no_run() {
  (
    ulimit -f 4  # kilobytes
    run 1 --epochs 3 --log-dir small
    [ "$(grep -c 'small/scalars.jsonl: cannot write: File too large; training goes on' err)" = 1 ] || fail "not one warning"
    complains "error: the log is not complete: [file] small/scalars.jsonl: cannot write: File too large"
    grep -q "^test accuracy" out || fail "the run did not go on"
  )
}

tensorboard_reads_the_same() {
  python3 "$here/compare_logs.py" whole/deep stopped killed other
}

for test in a_run_explains_itself a_resumed_run_logs_what_a_whole_one_does a_killed_run_lacks_nothing other_batches_go_on_behind_the_last_step \
  what_cannot_be_written_is_refused a_full_disk_ends_no_run tensorboard_reads_the_same; do
  if [ "$test" = tensorboard_reads_the_same ] && ! python3 -c 'import tensorboard' 2>/dev/null; then
    echo "$test: skipped, there is no Python with TensorBoard"
    continue
  fi
  rm -f out err
  $test
  echo "$test: passed"
done
