#!/bin/sh
# The program classify of docs/predictions.md: five classes with falling shares, named if names are given.
set -eu
classify=$1
untrained=$2
picture=$3
folder=$4
train_resnet=${5:-}
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

# Weights of a trainer say what they are of: names of classes, size and colours of pictures.
if [ -n "$train_resnet" ]; then
  "$train_resnet" --model resnet18 --epochs 1 --max-steps 1 --save-weights "$folder/digits.safetensors" > "$folder/train.txt"
  "$classify" "$picture" "$folder/digits.safetensors" > "$folder/digits.txt"
  cat "$folder/digits.txt"
  test "$(grep -c '^ *[0-9.]* %  [0-9]$' "$folder/digits.txt")" = 5
  "$train_resnet" --epochs 1 --max-steps 1 --save-weights "$folder/other.safetensors" > "$folder/train.txt"
  "$classify" "$picture" "$folder/other.safetensors" > "$folder/other.txt"  # of another network
  test "$(grep -c '^ *[0-9.]* %  [0-9]$' "$folder/other.txt")" = 5
fi
rm -rf "$folder"
