# shellcheck shell=bash
# What the tests of the programs share. Sourced, not run: a test then calls begin_in, and sets `command` to what run starts.
set -euo pipefail
export COLUMNS=400  # what a run says stands in one line
export CUDA_VISIBLE_DEVICES=  # of files and command lines, which are the same on a GPU, where each start takes longer
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# A network for faces of some ten thousand weights; with SINTER_TEST_WIDTH=64, InsightFace's width, there are eleven million.
width=${SINTER_TEST_WIDTH:-8}
small_backbone="--backbone iresnet18 --width $width"

# begin_in FOLDER: works in that folder, which is empty then.
begin_in() {
  rm -rf "$1"
  mkdir -p "$1"
  cd "$1"
}

# fail TEXT...: names the story that failed, and ends the test with the last lines of what was said.
fail() {
  local file names=("${FUNCNAME[@]:1}") story=
  for story in "${names[@]}"; do
    case $story in run | says* | complains* | quiet) ;; *) break ;; esac
  done
  echo "FAILED ($story${round:+, round $round}): $*"
  for file in out err; do [ ! -e $file ] || tail -n 12 $file | sed "s/^/  $file: /"; done
  exit 1
}

# run CODE ARGUMENTS...: "${command[@]}" with them, which is to end with CODE; its output is then in `out` and `err`, and has nothing
# that drives a terminal.
command=()
run() {
  local expected=$1 code=0
  shift
  timeout 600 "${command[@]}" "$@" >out 2>err || code=$?
  [ "$code" = "$expected" ] || fail "exit code $code in place of $expected from: ${command[*]} $*"
  ! LC_ALL=C grep -qP '[\x00-\x08\x0b-\x1f\x7f]' out err || fail "control characters in the output of: ${command[*]} $*"
}
# says TEXT, complains TEXT: in standard output, or in standard error; *_like: for an extended regular expression.
says() { grep -qF -- "$1" out || fail "standard output lacks: $1"; }
says_like() { grep -qE -- "$1" out || fail "standard output lacks: $1"; }
complains() { grep -qF -- "$1" err || fail "standard error lacks: $1"; }
complains_like() { grep -qE -- "$1" err || fail "standard error lacks: $1"; }
quiet() { ! grep -qF -- "$1" out || fail "standard output has: $1"; }

# picture TEXT [SIDE]: a grey image of SIDE x SIDE pixels, 16 if nothing is said, of that text again and again.
picture() {
  local side=${2:-16}
  printf 'P5 %d %d 255\n' "$side" "$side"
  head -c $((side * side)) < <(yes "$1")
}
# people FOLDER: three people with four grey images each, all different.
people() {
  local person image
  for person in ann bob eve; do
    mkdir -p "$1/$person"
    for image in 1 2 3 4; do picture "$person $person $image" >"$1/$person/$image.pgm"; done
  done
}

# contents FOLDER: the names and contents of all that is in it.
contents() { (cd "$1" && find . -type f -exec cksum {} + | sort -k3); }
# tensors FILE: what a file of weights holds behind its header, which says what they were trained on.
tensors() { tail -c +$(($(od -An -tu8 -N8 "$1") + 9)) "$1"; }
# edited FILE SCRIPT: a safetensors file whose header `sed -E SCRIPT` has changed, whatever length it then has.
edited() {
  local i size=$(($(od -An -tu8 -N8 "$1")))
  head -c $((size + 8)) "$1" | tail -c +9 | LC_ALL=C sed -E "$2" >header
  size=$(wc -c <header)
  for i in 0 8 16 24 32 40 48 56; do printf "\\x$(printf %02x $((size >> i & 255)))"; done
  cat header
  tensors "$1"
}
# numbers FOLDER: what a run logged there, without what depends on the clock and on memory.
numbers() { sed -E 's/"(time|[a-z]*\/[a-z_]*(per_second[a-z_]*|wait_share|peak_bytes))":[^,}]*,?//g' "$1/scalars.jsonl"; }
# value FILE NAME: of a line of a JSON file. latest FOLDER: the description of its newest checkpoint.
value() { sed -n "s/^ *\"$2\": \(.*[^,]\),*$/\1/p" "$1"; }
latest() { find "$1" -name state.json | sort | tail -n 1; }
