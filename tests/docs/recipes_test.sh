#!/bin/sh
# The programs of docs/recipes.md, and what comes out of them.
# Usage: recipes_test.sh <recipe> <folder of the programs> <folder to work in> <digits>
set -eu
recipe=$1
programs=$2
work=$3
digits=$4
rm -rf "$work"
mkdir -p "$work"
cd "$work"

run() {
  "$programs/doc_$recipe" "$@" | tee told.txt
}
# holds EXPRESSION: of the last line in `told`, the first being in the array `first`.
holds() {
  LC_ALL=C awk "{ gsub(/,/, \"\") } NR == 1 { split(\$0, first) } END { if (!($1)) { print \"FAILED: $1\"; exit 1 } }" told.txt
}

case $recipe in
  folder)
    "$programs/mixed_pictures" pictures
    run pictures weights.safetensors
    holds '$2 < first[2] && $9 >= 70'
    # The average goes its own way.
    awk '$4 != $9 { ++differ } END { exit !differ }' told.txt
    [ -s weights.safetensors ]
    ;;
  finetune)
    # Weights of three of the classes, and then all four.
    "$programs/mixed_pictures" pictures
    cp -r pictures three
    rm -r three/disc
    "$programs/doc_folder" three weights.safetensors
    run pictures weights.safetensors
    holds '$2 >= 75'
    ;;
  gan)
    run "$digits" 20
    # At some time: two networks that play against each other do not settle.
    awk 'NR == 1 { first = least = $NF } $NF < least { least = $NF } END { exit !(least < 0.5 * first) }' told.txt
    ;;
  focal_loss)
    run
    grep -q '^loss' told.txt
    awk '/^loss/ { if (!first) first = $2; last = $2 } END { exit !(last < 0.1 * first) }' told.txt
    holds '$1 == "rare" && $4 > 80'
    ;;
  distill)
    run "$digits"
    holds '$2 > 90 && $5 > 70'
    ;;
  own_op)
    run
    grep -qx 'gradcheck passed' told.txt
    holds '$2 < 0.01'
    ;;
  serve)
    run
    grep -qx '100 of 100 answers are right' told.txt
    ;;
  accumulate)
    run "$digits"
    awk '/^loss/ { if (!first) first = $2; last = $2 } END { exit !(last < 0.5 * first) }' told.txt
    holds '$NF < 1e-3'
    ;;
  metrics)
    run "$digits" log
    holds '$3 > 0.85'
    grep -q '^true . predicted' told.txt
    [ "$(sed 's/{"step":\([0-9]*\),.*/\1/' log/scalars.jsonl | tr '\n' ' ')" = '1 2 3 4 5 ' ]
    awk -F'"train/loss":' '{ split($2, loss, ","); if (NR == 1) first = loss[1]; last = loss[1] } END { exit !(last < 0.5 * first) }' log/scalars.jsonl
    grep -q '>Loss</text>' log/curves.svg
    ;;
  grad_cam)
    run
    grep -q '^a map of (24, 24)' told.txt
    holds '$13 > 85'
    ;;
  *)
    echo "no recipe $recipe"
    exit 1
    ;;
esac
rm -rf "$work"
