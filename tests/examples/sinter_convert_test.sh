#!/usr/bin/env bash
# sinter_convert on the files that PyTorch wrote: to safetensors and back, listing, keys and mistakes; train_resnet takes what it
# takes. Where PyTorch is installed (python3, or what PYTHON names) it reads what is written and is converted from.
# Usage: sinter_convert_test.sh <sinter_convert> <train_resnet> <folder of tests> <folder>
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
convert=$1 trainer=$2 tests=$3 work=$4
files=$tests/data/pytorch
begin_in "$work"

converts_both_ways() {
  local name
  for name in state legacy checkpoint views dtypes tied; do
    run 0 "$convert" "$files/$name.pth" "$name.safetensors" && says "$name.safetensors: "
    run 0 "$convert" "$name.safetensors" "$name.pt"
    run 0 "$convert" "$name.pt" "again_$name.safetensors"
    cmp "$name.safetensors" "again_$name.safetensors" || fail "$name changed on its way"
  done
  cmp state.safetensors checkpoint.safetensors || fail "the checkpoint's state differs"
  run 0 "$convert" state.pt again.pth && cmp state.pt again.pth || fail "not the same bytes"
}

says_what_it_takes() {
  local name
  run 0 "$convert" "$files/checkpoint.pth" --list
  says "checkpoint.pth: its weights are those under 'state_dict'"
  says "checkpoint.pth: 'module.' is taken off its names"
  says "0.weight               float32   (3, 2, 3, 3)"
  says "checkpoint.pth: 9 tensors, 0.0 MB"
  run 0 "$convert" "$files/extra_state.pth" --list && says "passed over as they are no named tensors: _extra_state, unset"
  run 1 "$convert" "$files/two.pth" --list && complains 'there are "model", "model_ema", "nested.deep"; choose one by its key'
  run 0 "$convert" "$files/two.pth" two.safetensors --key nested.deep --list && says "w  float32   (2, 3, 4)"
  # A name from a file drives no terminal.
  printf '%s' '{"a\u001b[2J":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' >header
  { printf "\\x$(printf %x "$(wc -c <header)")"'\0\0\0\0\0\0\0' && cat header && printf x; } >escape.safetensors
  run 0 "$convert" escape.safetensors --list && says 'a\x1b[2J'
  # Metadata go along, both ways.
  printf '%s' '{"__metadata__":{"classes":"[]"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' >header
  { printf "\\x$(printf %x "$(wc -c <header)")"'\0\0\0\0\0\0\0' && cat header && printf x; } >told.safetensors
  run 0 "$convert" told.safetensors copy.safetensors && grep -qaF '"classes":"[]"' copy.safetensors || fail "no metadata"
  run 0 "$convert" told.safetensors told.pth
  run 0 "$convert" told.pth back.safetensors && cmp copy.safetensors back.safetensors || fail "metadata are lost in told.pth"
  run 0 "$convert" back.safetensors back.pth && cmp told.pth back.pth || fail "not the same bytes"
  # What can be read can be written, but for zero bytes.
  LC_ALL=C sed 's/"classes":"\[\]"/"not":"\\u0000"/' told.safetensors >zero.safetensors
  for name in zero_copy.safetensors zero.pth; do
    run 0 "$convert" zero.safetensors "$name" && complains "zero.safetensors: left out, as there are zero bytes in it: the metadata not"
    ! grep -qaF u0000 "$name" || fail "it is written"
  done
  run 0 "$convert" "$files/state.pth" plain.safetensors && grep -qaF '"format":"pt"' plain.safetensors || fail "no format"
  run 0 "$convert" plain.safetensors plain.pth && ! grep -qaF metadata.json plain.pth || fail "metadata where there are none"
}

refuses() {
  run 2 "$convert" "$files/state.pth" && complains "expected an output, or --list"
  run 2 "$convert" "$files/state.pth" state.onnx && complains ".safetensors, .pth or .pt"
  run 2 "$convert"
  run 1 "$convert" missing.pth x.safetensors && complains "cannot open: No such file"
  run 1 "$convert" "$files/module.pt" x.safetensors && complains "save its state_dict()"
  run 1 "$convert" "$files/state.pth" state.safetensors && complains "state.safetensors is there already; --force replaces it"
  run 0 "$convert" "$files/state.pth" state.safetensors --force
  cp "$files/state.pth" own.pth
  ln own.pth link.pth
  ln -s own.pth symlink.pth
  local name
  for name in own.pth ./own.pth link.pth symlink.pth; do
    run 1 "$convert" own.pth "$name" --force && complains "is the input; give the output another name"
  done
  cmp own.pth "$files/state.pth" || fail "the input changed"
  run 1 "$convert" state.safetensors x.pth --key model && complains "expected no key"
  [ ! -e x.safetensors ] && [ ! -e x.pth ] || fail "an output of what was refused"
  run 0 "$convert" --help && says "--key"
}

feeds_the_trainer() {
  run 0 "$trainer" --threads 1 --workers 0 --epochs 1 --max-steps 1 --save-weights w.safetensors
  run 0 "$convert" w.safetensors w.pth
  run 0 "$trainer" --threads 1 --evaluate --load-weights w.safetensors
  grep '^test accuracy' out >expected
  run 0 "$trainer" --threads 1 --evaluate --load-weights w.pth
  quiet "does not say which classes and images it is of"
  grep '^test accuracy' out | cmp - expected || fail "another accuracy"
  # The trainer's own .pth is as that: a resnet32 that --model does not name, and its images' normalisation.
  run 0 "$trainer" --threads 1 --workers 0 --epochs 1 --max-steps 1 --model resnet32 --save-weights own32.pth
  run 0 "$trainer" --threads 1 --predict "$tests/data/images/gray.pgm" --load-weights own32.pth
  run 0 "$convert" own32.pth own32.safetensors && grep -qaF '"model":"resnet32"' own32.safetensors || fail "own32.pth has no metadata"
  run 1 "$trainer" --evaluate --load-weights "$files/two.pth" && complains "choose one by its key"
  run 1 "$trainer" --evaluate --load-weights "$files/checkpoint.pth" && says "its weights are those under 'state_dict'"
}

with_pytorch() {
  local python=${PYTHON:-python3}
  if ! "$python" -c "import torch" 2>/dev/null; then
    echo "not run: 1 check with PyTorch, which is not installed"
    return
  fi
  "$python" "$tests/reference/check_convert.py" "$convert"
}

converts_both_ways
says_what_it_takes
refuses
feeds_the_trainer
with_pytorch
echo "all well"
