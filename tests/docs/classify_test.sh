#!/bin/sh
# The programs of docs/classify_a_picture.md: five classes with falling shares, named if names are given.
set -eu
classify=$1
untrained=$2
picture=$3
folder=$4
rm -rf "$folder"
mkdir -p "$folder"
weights=$folder/untrained.safetensors

"$untrained" "$weights"
"$classify" "$picture" "$weights" > "$folder/plain.txt"
cat "$folder/plain.txt"
test "$(grep -c '^ *[0-9.]* %  class [0-9]*$' "$folder/plain.txt")" = 5
sort -c -s -k1,1rn "$folder/plain.txt"

i=0
while [ $i -lt 1000 ]; do echo "name $i"; i=$((i + 1)); done > "$folder/names.txt"
"$classify" "$picture" "$weights" "$folder/names.txt" > "$folder/named.txt"
sed 's/class/name/' "$folder/plain.txt" | cmp - "$folder/named.txt"

status=0
"$classify" "$folder/nothing.jpg" "$weights" 2> "$folder/error.txt" || status=$?
test "$status" = 1
grep -q 'nothing.jpg' "$folder/error.txt"
rm -rf "$folder"
