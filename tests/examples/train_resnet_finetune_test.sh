#!/usr/bin/env bash
# Training on from weights: another classifier, a frozen trunk, rates of its parts, stems, PyTorch's files, and what a run leaves of it.
# Usage: train_resnet_finetune_test.sh <program> <folder>
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
program=$1 work=$2
command=("$program" --threads 1 --workers 0 --seed 2)
begin_in "$work"

# make_data FOLDER CLASS...: grey images of 8x8 pixels, which differ by class; four to train on and two to test on each.
make_data() {
  local folder=$1 part class image
  shift
  for part in train test; do
    for class in "$@"; do
      mkdir -p "$folder/$part/$class"
      for image in 1 2 3 4; do
        [ $part = train ] || [ $image -lt 3 ] || continue
        picture "$class $image $part" 8 >"$folder/$part/$class/$image.pgm"
      done
    done
  done
}
make_data three a b c
make_data two x y
run 0 --data three --epochs 1 --batch 6 --save-weights three.safetensors
run 0 --data three --epochs 1 --batch 6 --save-weights three.pth
finetune=(--data two --batch 4 --load-weights three.safetensors --new-head)

# refused CODE WORDS ARGUMENTS...
refused() {
  local code=$1 words=$2
  shift 2
  run "$code" "$@"
  complains "$words"
}

# trunk FILE: writes all tensors but the classifier's into FILE.trunk, a line each: name and bytes.
trunk() {
  perl -e '
    open my $file, "<:raw", $ARGV[0] or die; local $/; my $data = <$file>;
    my $size = unpack "Q<", $data; my $header = substr $data, 8, $size; my %tensors;
    while ($header =~ /"([^"\\]+)":\{"dtype":"\w+","shape":\[[\d,]*\],"data_offsets":\[(\d+),(\d+)\]\}/g) {
      my ($name, $begin, $end) = ($1, $2, $3);
      $tensors{$name} = substr $data, 8 + $size + $begin, $end - $begin unless $name =~ /^fc\./;
    }
    print "$_ ", unpack("H*", $tensors{$_}), "\n" for sort keys %tensors' "$1" >"$1.trunk" || fail "no trunk in $1"
  [ "$(wc -l <"$1.trunk")" -gt 90 ] || fail "$1 has a trunk of $(wc -l <"$1.trunk") tensors"
}
same_trunk() {
  trunk "$1" && trunk "$2"
  cmp -s "$1.trunk" "$2.trunk"
}

wrong_values_are_refused_by_name() {
  refused 2 "--head-lr: expected a number from 1e-09 to 1000 but got '0'" "${finetune[@]}" --head-lr 0
  refused 2 "--freeze-trunk: expected a whole number from 0 to 1000000 but got '-1'" "${finetune[@]}" --freeze-trunk -1
  refused 2 "--trunk-lr: expected a number from 0 to 1 but got '2'" "${finetune[@]}" --trunk-lr 2
  refused 2 "--layer-decay: expected a number from 0.001 to 1 but got '0'" "${finetune[@]}" --layer-decay 0
  refused 2 "--stem: expected one of auto, imagenet, small but got 'imagnet'; did you mean 'imagenet'?" "${finetune[@]}" --stem imagnet
  refused 2 "--freeze-trunk needs --load-weights <file>: a trunk that is new has to learn" --data two --freeze-trunk 1
  refused 2 "--new-head needs --load-weights <file>: without weights all of the network is new" --data two --new-head
  refused 2 "--new-head makes a classifier that has learnt nothing; leave it out with --evaluate" "${finetune[@]}" --evaluate
  refused 2 "--key" --data two --key state_dict
  refused 1 "error: --stem imagenet is of resnet18 and larger; resnet20 is for small images" "${finetune[@]}" --stem imagenet
  refused 1 "error: --freeze-trunk needs --load-weights <file>" --data two --checkpoints none --resume --freeze-trunk 1
}

a_misfit_says_what_fits() {
  refused 1 "error: --load-weights three.safetensors: these are weights with 3 classes, the data has 2; --new-head gives the model another classifier" \
    --data two --load-weights three.safetensors
  refused 1 "these are weights of a resnet20, --model says resnet32; --model resnet20 fits" "${finetune[@]}" --model resnet32
  refused 1 "--key nowhere: " --data two --load-weights three.pth --new-head --key nowhere
  refused 1 "--key state_dict: " "${finetune[@]}" --key state_dict  # of no file of PyTorch's
}

a_frozen_trunk_keeps_every_bit() {
  local precision
  for precision in f32 mixed-bf16; do
    run 0 "${finetune[@]}" --epochs 2 --freeze-trunk 2 --precision $precision --ema 0.9 --save-weights frozen.safetensors
    says "a new classifier, the classifier alone for 2 epochs"
    quiet "from here on all of the network learns"
    same_trunk frozen.safetensors three.safetensors || fail "the trunk was changed under $precision"
  done
  run 0 "${finetune[@]}" --epochs 2 --freeze-trunk 2 --eager --save-weights eager.safetensors
  same_trunk eager.safetensors three.safetensors || fail "the trunk was changed by eager steps"
  run 0 "${finetune[@]}" --epochs 2 --freeze-trunk 1 --save-weights thawed.safetensors
  says "from here on all of the network learns"
  ! same_trunk thawed.safetensors three.safetensors || fail "the trunk was not thawed"
}

groups=(--optimizer adamw --lr 0.01 --head-lr 0.02 --trunk-lr 0.5 --layer-decay 0.9 --freeze-trunk 2 --epochs 4 --ema 0.9)

a_run_goes_on_bit_for_bit() {
  local stop
  run 0 "${finetune[@]}" "${groups[@]}" --checkpoints whole --save-weights whole.safetensors
  for word in head-lr trunk-lr layer-decay freeze-trunk new-head; do
    grep -q "\"$word\"" whole/recipe.json || fail "the recipe lacks $word"
  done
  for stop in 1 3 4 5 6; do  # two steps an epoch: frozen, within the second epoch, at the thaw, and after
    rm -rf part
    run 0 "${finetune[@]}" "${groups[@]}" --checkpoints part --max-steps $stop
    run 0 --checkpoints part --resume --save-weights part.safetensors
    cmp <(tensors part.safetensors) <(tensors whole.safetensors) || fail "stopped after $stop steps it came to other weights"
    [ "$(numbers part)" = "$(numbers whole)" ] || fail "stopped after $stop steps it has another log"
  done
  refused 1 "--trunk-lr         0.5 -> 0.25" --checkpoints part --resume --trunk-lr 0.25
  run 0 --checkpoints whole --resume --evaluate
  # From the recipe alone it is the same run.
  run 0 --data two --load-weights three.safetensors --recipe whole/recipe.json --save-weights again.safetensors
  cmp <(tensors again.safetensors) <(tensors whole.safetensors) || fail "the recipe gave other weights"
}

rates_are_those_asked_for() {
  run 0 "${finetune[@]}" --epochs 1 --optimizer sgd --trunk-lr 0 --save-weights still.safetensors
  trunk still.safetensors && trunk three.safetensors
  grep -v "running_\|num_batches" still.safetensors.trunk >now
  grep -v "running_\|num_batches" three.safetensors.trunk | cmp -s - now || fail "a trunk of rate 0 has moved"
  run 0 "${finetune[@]}" --epochs 1 --optimizer sgd --layer-decay 0.001 --save-weights decayed.safetensors
  trunk decayed.safetensors
  grep "conv1.weight" decayed.safetensors.trunk >now
  ! cmp -s now <(grep "conv1.weight" three.safetensors.trunk) || fail "no layer learns"
}

pytorchs_files_are_read_and_written() {
  run 0 --data two --batch 4 --load-weights three.pth --new-head --freeze-trunk 1 --epochs 1 --save-weights two.pth
  [ "$(head -c 2 two.pth)" = PK ] || fail "two.pth is no file of PyTorch's"
  run 0 --data two --batch 4 --load-weights two.pth --evaluate
  run 0 --data two --batch 4 --load-weights three.safetensors --new-head --freeze-trunk 1 --epochs 1 --save-weights two.safetensors
  run 0 --data two --batch 4 --load-weights two.pth --epochs 1 --save-weights from_pth.safetensors
  run 0 --data two --batch 4 --load-weights three.pth --new-head --epochs 1
}

several_processes_agree() {
  local steps
  for steps in --job --eager; do
    rm -rf ranks part
    run 0 "${finetune[@]}" "${groups[@]}" $steps --processes 2 --checkpoints ranks --save-weights ranks.safetensors
    run 0 "${finetune[@]}" "${groups[@]}" $steps --processes 2 --checkpoints part --max-steps 4
    same_trunk part/best.safetensors three.safetensors || fail "the trunk was changed"
    run 0 --checkpoints part --resume $steps --processes 2 --save-weights part.safetensors
    cmp <(tensors part.safetensors) <(tensors ranks.safetensors) || fail "two processes came to other weights ($steps)"
  done
}

stems_are_never_changed_in_silence() {
  local base=(--epochs 1 --batch 6 --model resnet18 --max-steps 1)
  run 0 --data three "${base[@]}" --stem imagenet --image-size 32 --save-weights large.safetensors
  says "imagenet stem"
  run 0 --data two "${base[@]}" --image-size 32 --load-weights large.safetensors --new-head --checkpoints stems
  says "--load-weights large.safetensors: its stem is kept, imagenet (7x7); without weights images of 32 pixels would get the other"
  run 0 --checkpoints stems --resume --max-steps 2 && says "imagenet stem"
  refused 1 "--load-weights large.safetensors: these are weights with the stem imagenet (7x7), --stem says small; --stem imagenet fits" \
    --data two "${base[@]}" --image-size 32 --load-weights large.safetensors --new-head --stem small
}

a_run_leaves_what_it_was_wrong_about() {
  local key
  run 0 --data three --epochs 1 --batch 6 --checkpoints left --report left.json
  for key in '"classes"' '"confusion"' '"per_class"' '"precision"' '"recall"' '"f1"' '"macro_f1"' '"mistakes"' '"taken_for"'; do
    grep -q "$key" left.json || fail "the report lacks $key"
  done
  says_like "^weakest +. \(F1 "
  cat left/events.out.tfevents.* >events
  for key in hparams mistakes/01 IHDR; do grep -qa "$key" events || fail "TensorBoard's file lacks $key"; done
  COLUMNS=80 run 0 --data three --epochs 1 --batch 6 --checkpoints narrow
  awk 'length($0) > 80 { exit 1 }' out || fail "a line is longer than 80 columns"
}

wrong_values_are_refused_by_name
a_misfit_says_what_fits
a_frozen_trunk_keeps_every_bit
a_run_goes_on_bit_for_bit
rates_are_those_asked_for
pytorchs_files_are_read_and_written
several_processes_agree
stems_are_never_changed_in_silence
a_run_leaves_what_it_was_wrong_about
