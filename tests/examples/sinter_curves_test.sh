#!/usr/bin/env bash
# What sinter_curves draws of folders of logs, and what it refuses. Usage: sinter_curves_test.sh <sinter_curves> <folder>
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
command=("$1")
begin_in "$2"

# log FOLDER FIRST: three epochs of ten steps, the first loss as given.
log() {
  mkdir -p "$1"
  local epoch
  for epoch in 1 2 3; do
    echo "{\"step\":${epoch}0,\"time\":100$epoch.5,\"train/loss\":0.$((9 - epoch)),\"train/learning_rate\":0.1}"
    echo "{\"step\":${epoch}0,\"time\":100$epoch.5,\"epoch\":$epoch.0,\"train/epoch_loss\":$([ $epoch = 1 ] && echo "$2" || echo "0.$((9 - epoch))"),\"test/loss\":0.$((9 - epoch)),\"test/accuracy\":0.$epoch}"
  done >"$1/scalars.jsonl"
}

several_runs_are_in_one_picture() {
  log 'a<b' 148.0
  log two 0.9
  run 0 'a<b' two -o both.svg && says "both.svg: 2 runs over epochs"
  [ "$(grep -c '>a&lt;b</text>' both.svg)" = 1 ] && [ "$(grep -c '>two</text>' both.svg)" = 1 ] || fail "not each run once"
  for text in 'Loss (training dashed)' 'Accuracy (training dashed)' 'Learning rate' 'clipped: 1 of 12 points, up to 148' epoch; do
    grep -qF ">$text</text>" both.svg || fail "the picture lacks $text"
  done
  [ "$(grep -c 'class="curve c1 dashed" d=' both.svg)" = 1 ] || fail "no dashed curve of the second run"
  ! grep -E 'href|<script|@import' both.svg || fail "something from outside"
  [ ! -s err ] || fail "a warning"
}

one_run_is_drawn_as_by_its_trainer() {
  run 0 two --output=one.svg
  grep -q '>train</text>' one.svg && grep -q '>test</text>' one.svg || fail "no names of curves"
  local over
  for over in steps seconds; do
    run 0 two -o $over.svg --over $over
    grep -qE ">${over%s}" $over.svg || fail "not over $over"
  done
  run 0 two 'a<b' -o both.svg --names 'sgd,adam & more'
  grep -q '>adam &amp; more</text>' both.svg || fail "no name"
}

a_cut_run_is_drawn_and_said() {
  log cut 0.9
  run 0 cut -o whole.svg
  printf '{"step":1000000,"ti' >>cut/scalars.jsonl
  run 0 cut -o cut.svg && complains "warning: cut/scalars.jsonl: the last line is cut short, and left out"
  cmp whole.svg cut.svg
  echo >>cut/scalars.jsonl
  run 1 cut -o cut.svg && complains "cut/scalars.jsonl: line 7: expected a JSON object"
}

what_cannot_be_drawn_is_refused() {
  mkdir -p empty early other
  : >early/scalars.jsonl
  run 1 two empty -o no.svg && complains "empty: expected a run's folder but it has no scalars.jsonl"
  run 1 none -o no.svg && complains "none: expected a run's folder"
  run 1 early -o no.svg && complains "expected losses or accuracies but none are logged"
  echo '{"step":1,"time":1.0,"train/loss":1.0}' >other/scalars.jsonl
  run 1 other -o no.svg && complains "other/scalars.jsonl: no epoch is complete yet; --over steps shows what there is"
  run 0 other -o other.svg --over steps
  run 1 two -o none/no.svg && complains "--output none/no.svg"
  mkdir -p folder.svg
  run 1 two -o folder.svg && complains "--output folder.svg is a folder"
  run 2 two -o no.png && complains "--output no.png: expected a name that ends in .svg"
  run 2 two && complains "--output"
  run 2 -o no.svg && complains "runs"
  run 2 two -o no.svg --ovr steps && complains "--over"
  run 2 two -o no.svg --over days && complains "--over"
  run 2 two two/ -o no.svg && complains "two/: is named twice"
  run 2 two -o no.svg --names a,b && complains "--names: expected 1 name, one for each run, but got 2"
  run 2 two cut -o no.svg --names a,a && complains "--names: expected different names but got 'a'"
  run 2 1 2 3 4 5 6 7 8 9 10 11 -o no.svg && complains "expected at most 10 runs but got 11"
  [ ! -e no.svg ] && [ ! -e no.png ] && [ -z "$(find . -name '.*' -type f)" ] || fail "a file was left"
}

several_runs_are_in_one_picture
one_run_is_drawn_as_by_its_trainer
a_cut_run_is_drawn_and_said
what_cannot_be_drawn_is_refused
echo "all passed"
