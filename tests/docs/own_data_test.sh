#!/bin/sh
# The programs of docs/own_data.md, and fcn of docs/recipes.md, learn what they are given: pictures of a bright rectangle whose
# mask tells where it is, and a table whose class is the sign of a sum.
set -eu
segmentation=$1
fcn=$2
table=$3
folder=$4
rm -rf "$folder"
mkdir -p "$folder/pictures" "$folder/masks"

# 24 pictures of 40 x 48 pixels, as PPMs, and their masks, as PGMs, which are told by their contents.
i=0
while [ "$i" -lt 24 ]; do
  draw() {
    LC_ALL=C awk -v i="$i" -v channels="$1" -v dark="$2" -v bright="$3" 'BEGIN {
      for (y = 0; y < 40; ++y) for (x = 0; x < 48; ++x) for (c = 0; c < channels; ++c) {
        inside = y >= i % 12 + 4 && y < i % 12 + 22 && x >= i % 7 + 6 && x < i % 7 + 30
        printf "\\%03o", (inside ? bright : dark) + (channels == 3 ? (x * 7 + y * 13 + c * 29 + i) % 40 : 0)
      }
    }'
  }
  name=$(printf '%02d' "$i")
  { printf 'P6 48 40 255\n'; printf "$(draw 3 40 150)"; } > "$folder/pictures/$name.ppm"
  { printf 'P5 48 40 255\n'; printf "$(draw 1 0 1)"; } > "$folder/masks/$name.png"
  i=$((i + 1))
done
"$segmentation" "$folder/pictures" "$folder/masks" 2 | tee "$folder/segmentation.txt"
awk 'END { exit !($3 > 97) }' "$folder/segmentation.txt"
"$fcn" "$folder/pictures" "$folder/masks" 2 | tee "$folder/fcn.txt"
LC_ALL=C awk 'END { exit !($3 > 0.8) }' "$folder/fcn.txt"

awk 'BEGIN { srand(1); for (i = 0; i < 500; ++i) { a = rand(); b = 10 * rand(); print a "," b "," (10 * a + b > 10) } }' > "$folder/table.csv"
"$table" "$folder/table.csv" | tee "$folder/table.txt"
awk '{ exit !($1 > 90 && $3 == 100) }' "$folder/table.txt"
rm -rf "$folder"
