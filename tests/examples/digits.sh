# shellcheck shell=bash
# Fewer digits than train_resnet has by itself, 1,437 and 360, for tests of which the number of images is not the point. Sourced, not run.
digits_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../examples/data/digits" && pwd)

# few_digits FOLDER TRAIN TEST: the first so many of each part, as IDX files. 352 in batches of 8 make as many steps as all in batches of 32.
few_digits() {
  local part count size
  mkdir -p "$1"
  for part in train test; do
    count=$([ $part = train ] && echo "$2" || echo "$3")
    size=$(printf '\\0\\0\\x%02x\\x%02x' $((count / 256)) $((count % 256)))
    { printf '\0\0\10\3%b\0\0\0\10\0\0\0\10' "$size" && head -c $((64 * count)) < <(zcat "$digits_folder/$part-images-idx3-ubyte.gz" | tail -c +17); } >"$1/$part-images-idx3-ubyte"
    { printf '\0\0\10\1%b' "$size" && head -c "$count" < <(zcat "$digits_folder/$part-labels-idx1-ubyte.gz" | tail -c +9); } >"$1/$part-labels-idx1-ubyte"
  done
}
