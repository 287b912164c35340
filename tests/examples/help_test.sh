#!/usr/bin/env bash
# --help of a program: no line is longer than 80, 100 or 120 columns, no word is cut, what most runs need stands first, and every
# option stands on the program's page. Usage: help_test.sh (<program> <page>)...
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED (${program##*/}): $*"; exit 1; }
words() { tr -s ' \n' '\n' <"$1"; }
# The first of all options, in order.
first() { sed -n '/^Usage/,/^Examples:/s/^  --\([a-z-]*\).*/\1/p' "$work/80" | tr '\n' ' '; }

while [ $# -gt 0 ]; do
  program=$1 page=$2
  shift 2
  for columns in 80 100 120 1000; do
    COLUMNS=$columns "$program" --help >"$work/$columns" </dev/null
    awk -v columns=$columns 'length > columns { print; bad = 1 } END { exit bad }' "$work/$columns" || fail "longer than $columns columns"
    cmp -s <(words "$work/80") <(words "$work/$columns") || fail "other words at $columns columns: $(diff <(words "$work/80") <(words "$work/$columns") | head -n 4)"
  done
  env -u COLUMNS "$program" --help >"$work/piped"
  cmp "$work/80" "$work/piped" || fail "not 80 columns in a pipe"
  ! grep -nE 'TEXT|FLOAT|UINT|INT:|DIR|\.\.[0-9]|=0$' "$work/80" || fail "words of CLI11"
  [ "$(sed -n '/^Examples:/,/^$/p' "$work/1000" | grep -c "^  ${program##*/} ")" = 4 ] || fail "not four examples"
  case ${program##*/} in
    train_resnet) wanted="data model epochs batch lr " ;;
    train_insightface) wanted="data verify backbone epochs batch lr " ;;
    *) wanted=$(first) ;;
  esac
  [ "$(first)" = "$wanted" ] || fail "it begins with $(first)"
  [ "$(grep -E '^[A-Z][^ ]*.*:$' "$work/80" | tail -n 1)" = "System:" ] || fail "what is about the machine is not last"
  # Twice --help would not be told from an option that is not there.
  options=$(grep -oE -- '--[a-z0-9-]+' "$work/1000" | sort -u)
  [ "$(wc -w <<<"$options")" -ge 5 ] || fail "few options: $options"
  for option in $options; do
    grep -qE -- "(^|[^a-z-])$option([^a-z0-9-]|$)" "$page" || missing+=" $option"
  done
  [ -z "${missing:-}" ] || fail "not on ${page##*/}:$missing"
  echo "${program##*/}: $(wc -w <<<"$options") options"
done
