#!/usr/bin/env bash
# How train_insightface's steps run, on made-up faces of 16x16 pixels: each optimiser, schedule and augmentation goes on bit for bit;
# batches that make one step; averages; what ends a run; where time and memory go. Usage: train_insightface_course_test.sh <program> <folder>
export SINTER_DETERMINISTIC=1
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
program=$1 work=$2
command=("$program" --threads 1)
begin_in "$work"

people people
# 120 images of 12 identities: 12 batches an epoch.
small="--synthetic 12 $small_backbone --dims 8 --image-size 16 --batch 10 --workers 0"

# What a run that was stopped ends with is what one that was not ends with, options that no recipe had before included.
each_course_goes_on_bit_for_bit() {
  local options eager
  for options in "--optimizer adamw --beta1 0.8 --accumulate 2 --ema 0.9 --sample-rate 0.9 --augment insightface --random-erasing 0.5" \
    "--optimizer lars --trust-coefficient 0.02 --nesterov --schedule step --accumulate 2 --eager" \
    "--optimizer rmsprop --schedule plateau --plateau-patience 0 --gamma 0.5 --lr 0.1 --augment adaface --color-jitter 0.4,0.4,0.4,0.1" \
    "--optimizer lamb --schedule multi-step --milestones 1 --warmup 0.25 --randaugment 2,9"; do
    rm -rf parts
    eager=$(grep -o -e --eager <<<"$options" || true)  # of the machine, which no recipe keeps
    run 0 $small --epochs 2 $options --save-weights whole.safetensors --log whole.csv
    cp whole.csv "whole-$(set -- $options; echo "$2").csv" && rm whole.csv
    run 0 $small --epochs 2 $options --checkpoints parts --max-steps 7
    says_like '^stopped; go on with --checkpoints parts --resume$'
    run 0 --checkpoints parts --resume $eager --save-weights resumed.safetensors --log parts.csv
    cmp whole.safetensors resumed.safetensors || fail "other weights with $options"
    rm -f parts.csv
  done
}

# Rates as the logs have them: the last step's of each epoch.
rates() { tail -n +2 "$1" | cut -d, -f3 | paste -sd ' '; }

rates_follow_the_schedule() {
  [ "$(rates whole-lamb.csv)" = "0.01 0.001" ] || fail "milestones: $(rates whole-lamb.csv)"
  run 0 $small --batch 30 --epochs 5 --schedule plateau --plateau-patience 0 --gamma 0.5 --lr 1e-9 --log plateau.csv  # chance moves the loss
  awk -F, 'NR > 2 { if ($3 != (worse ? rate / 2 : rate)) exit 1 } NR > 1 { worse = NR > 2 && $4 >= best; if (NR == 2 || $4 < best) best = $4; rate = $3; some += worse }
    END { exit !some }' plateau.csv || fail "not halved after each epoch without a smaller loss: $(cut -d, -f3,4 plateau.csv | paste -sd ' ')"
}

batches_of_a_step_are_one() {
  run 0 $small --epochs 1 --accumulate 5 --sample-rate 0.9 --report five.json --save-weights job.safetensors
  [ "$(value five.json steps)" = 2 ] || fail "two of twelve batches are left over, and ten make two steps"
  SINTER_PASSES=-all run 0 $small --epochs 1 --accumulate 5 --sample-rate 0.9 --save-weights job.safetensors
  run 0 $small --epochs 1 --accumulate 5 --sample-rate 0.9 --eager --save-weights eager.safetensors
  cmp job.safetensors eager.safetensors || fail "other weights"
  run 1 $small --epochs 1 --accumulate 13
  complains "--accumulate 13: an epoch has only 12 batches"
}

averages_are_verified_and_saved() {
  local last
  run 0 $small --epochs 1 --checkpoints plain
  run 0 $small --epochs 1 --ema 0.8 --verify people --verify-every 0 --checkpoints averaged --save-weights averaged.safetensors --export averaged.onnx
  last=$(sed -n 's/^step 12  //p' out)
  cmp plain/checkpoint-00000001/backbone.safetensors averaged/checkpoint-00000001/backbone.safetensors || fail "averages change what is trained"
  cmp <(tensors averaged.safetensors) <(tensors averaged/best.safetensors) || fail "the best are no averages"
  ! cmp -s <(tensors averaged.safetensors) <(tensors averaged/checkpoint-00000001/backbone.safetensors) || fail "no averages are saved"
  run 0 --evaluate --load-weights averaged.safetensors --verify people --export loaded.onnx
  grep -qxF "$last" out || fail "not what the run said: $last"
  cmp averaged.onnx loaded.onnx || fail "no averages are exported"
  run 0 --evaluate --checkpoints averaged --resume
  [ "$(head -n 1 out)" = "$last" ] || fail "not what the run said: $last"
  # Averages that begin amid a run begin with its weights.
  run 1 --checkpoints plain --resume --epochs 2 --ema 0.8
  complains "--ema"
  run 0 --checkpoints plain --resume --epochs 2 --ema 0.8 --change-recipe --max-steps 13
}

another_optimizer_begins_afresh() {
  run 0 $small --epochs 2 --sample-rate 0.9 --max-steps 3 --checkpoints other
  run 0 --checkpoints other --resume --optimizer adamw --change-recipe --max-steps 5
  says_like 'the optimiser starts afresh' && says_like '^  adamw    learning rate 0.001 '
  run 2 --checkpoints other --resume --optimizer lars --sample-rate 0.5
  complains "--sample-rate 1 alone fits"
}

a_run_without_progress_ends() {
  run 0 $small --epochs 30 --patience 2 --lr 1e-9 --verify people --verify-every 0 --checkpoints ended
  local best epochs
  best=$(sed -nE 's/^best verification accuracy: .* at step ([0-9]+)$/\1/p' out)
  epochs=$(grep -c '^epoch ' out)
  [ "$epochs" = $((best / 12 + 2)) ] && [ "$epochs" -lt 30 ] || fail "$epochs epochs, the best at step $best"
  says "no better test for 2 epochs (--patience 2): the run ends"
  run 0 --checkpoints ended --resume --epochs 40
  says "the run has ended, with no better test for 2 epochs (--patience 2); --patience 0 --change-recipe trains on"
  ! grep -q '^epoch ' out || fail "an ended run went on"
  run 2 $small --patience 2
  complains "--patience needs pairs: --verify <path>"
}

steps_are_timed_and_traced() {
  run 0 $small --epochs 2 --profile 2 --trace trace.json --log log.csv --report-html job.html
  says_like '^2 steps, op by op$' && says_like '^conv2d ' && says_like '^the 10 longest by part of the model$' && says_like '^trace written to trace.json$'
  [ "$(grep -c '"name":"conv2d",.*"scope":"backbone.conv1"' trace.json)" = 2 ] || fail "the trace is not of two steps"
  grep -q '<title>train_insightface, ' job.html && grep -q '<section id="calls">' job.html || fail "the job's report has no title or no calls"
  [ "$(head -n 1 log.csv)" = epoch,steps,learning_rate,loss,accuracy,samples_s,compute_samples_s,seconds,peak_bytes,skipped_steps ] || fail "no head of the log"
  [ "$(tail -n +2 log.csv | cut -d, -f1,2 | paste -sd ' ')" = "1,12 2,24" ] || fail "not a line for each epoch"
  run 1 $small --epochs 1 --log log.csv && complains "--log log.csv holds another run's lines"
  run 0 $small --epochs 1 --max-steps 3 --profile 2 --trace none.json && complains "did not reach: nothing was timed"
  [ ! -e none.json ] || fail "a trace of nothing"
  run 1 $small --epochs 1 --profile 2 --trace nowhere/x && complains "--trace nowhere/x: there is no folder nowhere"
}

memory_is_limited() {
  run 0 $small --epochs 1 --lr 0.02 --report free.json --log free.csv
  run 0 $small --epochs 1 --lr 0.02 --memory-limit 0.0001 --report limited.json --log limited.csv
  complains recompute
  awk -v limited="$(value limited.json peak_gib)" -v free="$(value free.json peak_gib)" 'BEGIN { exit !(0 < limited && limited < free) }' ||
    fail "the limit saves nothing: $(value free.json peak_gib) and $(value limited.json peak_gib)"
  paste -d, free.csv limited.csv | awk -F, 'NR == 2 { d = $4 - $14; if (d < 0) d = -d; if (d > 1e-3 * $4) exit 1 }' || fail "another loss"
}

images_are_decoded_where_it_is_asked() {
  local of_people="--data people ${small#--synthetic 12} --batch 4 --epochs 1"
  run 0 $of_people --decode cpu --save-weights cpu.safetensors --report cpu.json
  grep -q '"decoder": "the workers"' cpu.json || fail "who decodes is not in the report"
  run 0 $of_people --decode auto --save-weights auto.safetensors
  cmp cpu.safetensors auto.safetensors || fail "other weights"
  run 1 $of_people --decode gpu && complains "expected a GPU to decode on"
  run 1 $of_people --decode gpu --augment adaface && complains "--decode gpu: --augment needs images that workers decode"
}

shards_train_as_their_folder_does() {
  local of_people="${small#--synthetic 12} --batch 4 --epochs 1" person image label=0
  mkdir -p loose shards
  for person in ann bob eve; do
    for image in 1 2 3 4; do
      cp people/$person/$image.pgm loose/$label$image.pgm && echo $label >loose/$label$image.cls
    done
    label=$((label + 1))
  done
  printf 'ann\nbob\neve\n' >shards/classes.txt
  (cd loose && tar --format=ustar -cf ../shards/train-0.tar --sort=name 0* && tar --format=ustar -cf ../shards/train-1.tar --sort=name 1* 2*)
  run 0 --data shards $of_people --save-weights shards.safetensors
  says_like '^shards \(shards\): 12 images of 3 identities$'
  run 0 --data people $of_people --save-weights folder.safetensors
  cmp <(tensors folder.safetensors) <(tensors shards.safetensors) || fail "other weights than those of the folder"
}

a_layer_that_fails_is_named() {
  run 1 $small --epochs 3 --lr 1000 --weight-decay 1000
  complains_like '^error: .*steps were skipped; try a smaller learning rate \(--lr\); in a batch like it, the first bad value is in .* backbone\.layer'
}

for test in each_course_goes_on_bit_for_bit rates_follow_the_schedule batches_of_a_step_are_one averages_are_verified_and_saved another_optimizer_begins_afresh \
  a_run_without_progress_ends steps_are_timed_and_traced memory_is_limited images_are_decoded_where_it_is_asked shards_train_as_their_folder_does a_layer_that_fails_is_named; do
  rm -f out err
  begin=$SECONDS
  $test
  echo "$test: passed ($((SECONDS - begin)) s)"
done
