#!/bin/sh
# The program of docs/logs.md: a run that goes on from step 50 logs every step once.
set -eu
program=$1
folder=$2
rm -rf "$folder"
"$program" "$folder"
"$program" "$folder" 50
test "$(sed 's/{"step":\([0-9]*\),.*/\1/' "$folder/scalars.jsonl")" = "$(seq 10 10 100)"
grep -q '>Loss</text>' "$folder/curves.svg"
! "$program" "$folder" 2> "$folder/error.txt"
grep -q 'has the log of another run' "$folder/error.txt"
