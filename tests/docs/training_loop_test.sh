#!/bin/sh
# The program of docs/training_loop.md: a run that is stopped and resumed ends in the same bits as one that is not.
set -eu
program=$1
data=$2
folder=$3
rm -rf "$folder"
mkdir -p "$folder"

"$program" "$data" "$folder/whole" > "$folder/whole.txt"

status=0
"$program" "$data" "$folder/parted" 30 > "$folder/first.txt" || status=$?
test "$status" = 130
"$program" "$data" "$folder/parted" > "$folder/second.txt"
grep -q '^resumed at step 30$' "$folder/second.txt"

grep '^last weight' "$folder/whole.txt" > "$folder/whole_weight.txt"
grep '^last weight' "$folder/second.txt" > "$folder/second_weight.txt"
cmp "$folder/whole_weight.txt" "$folder/second_weight.txt"
cat "$folder/whole.txt"
rm -rf "$folder"
