#!/usr/bin/env bash
# train_resnet must not lose its user's work: what cannot be saved is refused before training, what is there is not overwritten, and
# a run that is stopped has saved what was asked for. Usage: train_resnet_safety_test.sh <program> <folder>
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
program=$1 work=$2
command=("$program" --threads 1)
unset COLUMNS  # lines are as wide as in a pipe
begin_in "$work"

# What an option was in the newest checkpoint of a folder.
recipe_of() { sed -n "s/^ *\"recipe.$2\": \"\(.*\)\",*$/\1/p" "$(find "$1" -name state.json | sort | tail -n 1)"; }
refused_before_training() { run 1 "$@"; quiet "resnet20, f32"; quiet "epoch "; }

mistakes_are_told_apart_and_exit_2() {
  run 2 --chekpoints run && complains "error: there is no option --chekpoints; did you mean --checkpoints?"
  run 2 --epoch 3 && complains "did you mean --epochs?"
  run 2 --xyzzy && complains "there is no option --xyzzy" && ! grep -q "did you mean" err || fail "a far-fetched guess"
  run 2 digits && complains "'digits' belongs to no option"
  ! grep -q "did you mean" err || fail "a far-fetched guess"
  mkdir -p pngs && touch some.json
  run 2 pngs && complains "'pngs' belongs to no option; did you mean --data pngs?"
  run 2 --epochs 3 data/pngs && complains "'data/pngs' belongs to no option; did you mean --data data/pngs?"
  run 2 some.json && complains "did you mean --recipe some.json?"
  mkdir -p a_run && touch a_run/run.json
  run 2 --resume a_run && complains "'a_run' belongs to no option; did you mean --checkpoints a_run?"
  run 2 --learning-rate 0.1 && complains "there is no option --learning-rate; did you mean --lr?"
  run 2 --batch-size 32 && complains "there is no option --batch-size; did you mean --batch?"
  run 2 --num-workers 2 && complains "there is no option --num-workers; did you mean --workers?"
  run 2 --model-ema 0.99 && complains "there is no option --model-ema; did you mean --ema?"
  run 2 --amp && complains "there is no option --amp; did you mean --precision?"
  run 2 -b 32 && complains "there is no option -b; did you mean --batch?"
  run 2 --pretrained && complains "there is no option --pretrained; did you mean --load-weights?"
  run 2 --modle resnet20 && complains "there is no option --modle; did you mean --model?"
  run 2 --model resnet81 && complains "but got 'resnet81'; did you mean 'resnet18'?"
  run 2 --device gpu && complains "--device: expected auto, cpu, cuda or cuda:<index> but got 'gpu'; did you mean 'cuda'?"
  run 2 --device cuda:x && complains "but got 'cuda:x'"
  run 2 --precision fp16 && complains "but got 'fp16'; did you mean 'mixed-f16'?"
  run 2 --precision bf16 && complains "but got 'bf16'; did you mean 'mixed-bf16'?"
  run 2 --epochs 0x10 && complains "--epochs: expected a whole number from 1 to 1000000 but got '0x10'"
  run 2 --memory-limit nan
  run 2 --lr nan && complains "--lr: expected a number from 1e-09 to 1000 but got 'nan'"
  local option
  for option in --warmup --momentum --weight-decay --label-smoothing --clip --beta1; do
    run 2 $option nan && complains "$option: expected a number"
  done
  run 2 --weight-decay inf
  run 2 --momentum 2
  run 2 --epochs 1.5 && complains "--epochs: expected a whole number from 1 to 1000000 but got '1.5'"
  run 2 --lr && complains "error: --lr needs a value"
  run 2 --seed -1
  run 2 --batch 0
  run 2 --checkpoints "" && complains "--checkpoints: expected a name but got nothing"
  run 2 --optimizer adamw --momentum 0.9 && complains "--momentum is of --optimizer sgd"
  run 2 --beta1 0.9 && complains "--beta1 is of --optimizer adamw"
  run 2 --report same --log same && complains "cannot both be same"
  run 2 --trace same --profile 1 --report same && complains "cannot both be same"
  run 2 --trace x && complains "--trace needs --profile <steps>"
  run 2 --resume && complains "--resume requires --checkpoints"
  run 2 --checkpoints run --change-recipe && complains "--change-recipe requires --resume"
  [ ! -e run ] || fail "a mistake made a folder"
  run 0 --version && says "train_resnet of Sinter "
  run 0 --help && says "--change-recipe" && says "130 (Ctrl-C)"
}

# The mistake is told by the name that the program was called by: of train_resnet itself nobody there may know.
a_script_that_starts_it_is_named() {
  mkdir -p bin build/examples
  printf '#!/bin/sh\n' >bin/cmake
  printf '#!/bin/sh\necho install ok installed\n' >bin/dpkg-query
  chmod +x bin/*
  ln -s "$program" build/examples/train_resnet
  local command=(env PATH="$PWD/bin:$PATH" SINTER_BUILD_DIR="$PWD/build" "$here/../../scripts/train.sh")
  run 2 --xyzzy && complains "$here/../../scripts/train.sh --help tells all options"
  run 0 --help && says "Usage: train_resnet [options]"
  run 1 --data nowhere && complains "error: --data nowhere: there is no such folder"
}

a_batch_of_more_than_there_is_is_told() {
  run 0 --batch 5000 --epochs 1 --checkpoints large
  says "  run      1 epoch, batch 1437 (all images, fewer than --batch 5000), seed 0"
  run 0 --checkpoints large --resume --epochs 2 && says "2 epochs, batch 1437 (all images, fewer than --batch 5000)"
}

evaluating_needs_weights() {
  run 2 --evaluate && complains "--evaluate needs weights: --load-weights <file>, or --checkpoints <folder> --resume"
  run 2 --evaluate --checkpoints first && complains "add --resume for the newest checkpoint in first"
  run 1 --evaluate --checkpoints nowhere --resume && complains "there is no checkpoint in nowhere"
  [ ! -e nowhere ] || fail "evaluating made a folder"
}

a_used_folder_is_not_begun_anew_in() {
  run 0 --epochs 3 --lr 0.05 --checkpoints first --max-steps 2
  local before
  before=$(contents first)
  refused_before_training --epochs 3 --checkpoints first
  complains "--checkpoints first holds a run already, up to checkpoint-00000001; add --resume to go on with it"
  [ "$(contents first)" = "$before" ] || fail "the folder has changed"
}

# What is written is what the name says.
names_end_in_the_format() {
  local name
  for name in x.pth.tar x.bin x.PTH x.ckpt x.onnx x.safetensor folder.v2/x.SAFETENSORS; do
    run 2 --epochs 1 --save-weights "$name"
    complains "--save-weights: expected a name that ends in .safetensors, .pth or .pt but got '$name'"
    run 2 --evaluate --load-weights w.safetensors --save-weights "$name" && complains "but got '$name'"
  done
  for name in x.safetensors x.pth x.onx x.ort; do
    run 2 --load-weights w.safetensors --export "$name" && complains "--export: expected a name that ends in .onnx but got '$name'"
  done
}

outputs_are_probed_before_training() {
  touch file
  echo "epoch,of,another" >old.csv
  mkdir -p folder
  refused_before_training --checkpoints file && complains "--checkpoints file is no folder"
  refused_before_training --checkpoints file/run && complains "--checkpoints file/run cannot be written"
  local option
  for option in --save-weights --export --report --report-html --log "--profile 1 --trace"; do
    refused_before_training $option nowhere/x && complains "${option##* } nowhere/x: there is no folder nowhere"
    refused_before_training $option folder && complains "${option##* } folder is a folder"
    refused_before_training $option /dev/full && complains "${option##* } /dev/full is a device or a pipe"
  done
  local longest
  longest=$(printf 'n%.0s' $(seq 251)).csv  # as long as a name can be
  refused_before_training --log "$longest" --report nowhere/x && complains "--report nowhere/x: there is no folder nowhere"
  refused_before_training --log "n$longest" && complains "cannot be written: File name too long"
  refused_before_training --log old.csv && complains "--log old.csv holds another run's lines"
  [ "$(cat old.csv)" = "epoch,of,another" ] || fail "the log has changed"
  [ -z "$(ls folder)" ] || fail "a probe was left"
  [ "$(id -u)" = 0 ] && return  # to whom everything is writable
  chmod a-w folder
  refused_before_training --checkpoints folder/run && complains "Permission denied"
  refused_before_training --report folder/x && complains "Permission denied"
  chmod u+w folder
  touch readonly && chmod a-w readonly
  refused_before_training --save-weights readonly && complains "readonly cannot be written: Permission denied"
}

a_run_goes_on_with_its_own_recipe() {
  run 0 --checkpoints first --resume --max-steps 3
  says "resumed first/checkpoint-00000001 at step 2"
  [ "$(recipe_of first lr) $(recipe_of first epochs)" = "0.05 3" ] || fail "not the run's own recipe"
  local before
  before=$(contents first)
  run 0 --checkpoints first --resume --max-steps 3
  [ "$(contents first)" = "$before" ] || fail "a run without a step has saved another checkpoint"
  run 1 --checkpoints first --resume --max-steps 4 --lr 0.2 --weight-decay 0.01 --epochs 2
  complains "the run in first has another recipe:"
  complains "--lr               0.05 -> 0.2"
  complains "--weight-decay     0.0005 -> 0.01"
  complains "--epochs           3 -> 2"
  complains "add --change-recipe"
  run 1 --checkpoints first --resume --max-steps 4 --model resnet32 --change-recipe
  complains "is of a resnet20; it cannot go on as a resnet32"
  [ "$(contents first)" = "$before" ] || fail "a refused run has changed the folder"

  run 0 --checkpoints first --resume --max-steps 4 --epochs 4
  says "the schedule is drawn over 4 epochs in place of 3"
  run 0 --checkpoints first --resume --max-steps 5 --lr 0.2 --change-recipe
  says "--lr               0.05 -> 0.2"
  [ "$(recipe_of first lr) $(recipe_of first epochs)" = "0.2 4" ] || fail "not the changed recipe"
  run 0 --checkpoints first --resume --max-steps 6 --optimizer adamw --batch 16 --change-recipe
  says "the optimiser starts afresh"
  says "epoch 1 is begun anew"
  [ "$(recipe_of first optimizer) $(recipe_of first lr)" = "adamw 0.003" ] || fail "not the other optimiser's rate"
}

# Takes the recipe out of a checkpoint, as those of earlier versions have none.
make_old() {
  local size crc body end
  crc_of() { gzip -c | tail -c 8 | od -An -tx4 -N4 | tr -d ' '; }
  sed -i '/"recipe\./d; /"data"/d; /"epoch_compute_seconds"/d; /"model_metadata"/d; /"run"/d; /"test_fingerprint"/d' "$1/state.json"
  size=$(wc -c <"$1/state.json") crc=$(crc_of <"$1/state.json")
  sed -i "s/^[0-9a-f]* [0-9]* state.json$/$crc $size state.json/" "$1/manifest.txt"
  sed -i '$d' "$1/manifest.txt"
  end=$(crc_of <"$1/manifest.txt")
  echo "$end end" >>"$1/manifest.txt"
}

checkpoints_of_earlier_versions_go_on() {
  run 0 --epochs 2 --lr 0.05 --checkpoints old --max-steps 2
  make_old old/checkpoint-00000001
  run 0 --checkpoints old --resume --max-steps 3 --lr 0.05
  says "resumed old/checkpoint-00000001 at step 2"
  says "the checkpoint does not hold its recipe"
  says "old/checkpoint-00000001 does not say which classes and images it is of; those of the data are taken for them"
  [ "$(recipe_of old lr) $(recipe_of old epochs)" = "0.05 2" ] || fail "not the recipe of the command line"
}

stopped_by() {  # SIGNAL CODE FOLDER
  local code=0 i
  "$program" --threads 1 --epochs 1000 --checkpoints "$3" --save-weights "$3.safetensors" --report "$3.json" --log "$3.csv" >out 2>err &
  for ((i = 0; i < 3000; ++i)); do
    grep -qs "^epoch   1/1000" out && break
    sleep 0.1
  done
  kill -"$1" $!
  wait $! || code=$?
  [ "$code" = "$2" ] || fail "exit code $code in place of $2 after SIG$1"
  [ "$(tail -n 1 out)" = "stopped; go on with --checkpoints $3 --log $3.csv --resume" ] || fail "the last line is another"
  grep -q '"complete": false' "$3.json" || fail "no report"
  local step
  step=$(sed -n 's/^ *"step": \([0-9]*\),*$/\1/p' "$(find "$3" -name state.json | sort | tail -n 1)")
  [ "$step" -ge 44 ] || fail "step $step in the checkpoint"
  run 0 --checkpoints "$3" --resume --max-steps $((step + 1))
  says "at step $step"
  run 0 --evaluate --load-weights "$3.safetensors"
}

the_end_tells_how_to_go_on() {
  run 0 --max-steps 1 --checkpoints "a run" --log-dir "its log" --log "it's.csv"
  local words
  words=$(sed -n 's/^stopped; go on with //p' out)
  eval "run 0 $words --max-steps 2" && says "at step 1"
  [ ! -e "a run/scalars.jsonl" ] || fail "the log went elsewhere"
  run 0 --max-steps 1 && says "stopped; without --checkpoints it cannot go on"
}

# The end of a run says what it left, and report.json who was taken for whom.
the_end_tells_what_is_left() {
  run 0 --epochs 010 --max-steps 90 --checkpoints told --save-weights told.safetensors --report told.json --log told.csv
  says "10 epochs, batch 32"
  local line
  for line in 'best test    [0-9.]* % after epoch [12]' 'best weights told/best.safetensors' 'last weights told.safetensors' \
    'checkpoint   told/checkpoint-00000003' 'report       told.json' 'log          told.csv' 'report       told/report.json' \
    'curves       told/curves.svg' 'TensorBoard  tensorboard --logdir told'; do
    grep -qx -- "$line" out || fail "the end lacks: $line"
  done
  [ "$(tail -n 1 out)" = "stopped; go on with --checkpoints told --log told.csv --resume" ] || fail "the last line is another"
  run 0 --checkpoints told --resume --evaluate --report tested.json
  ! grep -q "TensorBoard\|^checkpoint" out || fail "a test left nothing"
  grep -q '"classes": \[' tested.json || fail "no classes"
  # 360 digits, of which those on the diagonal are the accuracy.
  sed -n '/"confusion"/,$p' tested.json | grep -o '\[[0-9].*\]' | tr -d '[]' | awk -F, -v accuracy="$(sed -n 's/^ *"accuracy": \([0-9.]*\).*/\1/p' tested.json)" '
    { for (i = 1; i <= NF; ++i) all += $i; right += $NR; if (NF != 10) exit 2 }
    END { difference = right / 360 - accuracy; exit !(NR == 10 && all == 360 && difference * difference < 1e-12) }' || fail "the matrix is wrong"
  # A run without a folder knows its best, too.
  run 0 --epochs 1
  says "best test  "
  awk 'length > 80 { exit 1 }' out || fail "a line of more than 80 columns: $(awk 'length > 80' out)"
  ! grep -q "100%" err || fail "a bar that is full"
}

a_stopped_run_has_saved_everything() {
  stopped_by INT 130 interrupted
  stopped_by TERM 143 terminated
  stopped_by HUP 129 hung_up
  [ "$(head -n 1 interrupted.csv | cut -d, -f1-4)" = "epoch,steps,learning_rate,loss" ] || fail "the log has no header"
  [ "$(sed -n 2p interrupted.csv | cut -d, -f1-2)" = "1,44" ] || fail "the log lacks epoch 1"
}

a_damaged_checkpoint_is_passed_over() {
  run 0 --checkpoints damaged --checkpoint-every 1 --max-steps 3
  printf x | dd of=damaged/checkpoint-00000003/model.safetensors bs=1 seek=5000 conv=notrunc 2>dd.log
  run 0 --checkpoints damaged --resume --max-steps 3
  says "resumed damaged/checkpoint-00000002 at step 2"
  says "checkpoint-00000003 is damaged and was passed over"
  complains "damaged/checkpoint-00000003/model.safetensors: the manifest says crc32"
  local i
  for i in damaged/checkpoint-*; do printf x | dd of="$i/manifest.txt" bs=1 seek=30 conv=notrunc 2>dd.log; done
  run 1 --checkpoints damaged --resume
  complains "damaged/checkpoint-00000004/manifest.txt"
}

removing_old_checkpoints_takes_nothing_else() {
  run 0 --checkpoints strays --checkpoint-every 1 --max-steps 2
  mkdir strays/checkpoint-00000001/plots
  echo mine >strays/checkpoint-00000001/plots/loss.txt
  echo mine >strays/checkpoint-00000002/notes.txt
  run 0 --checkpoints strays --resume --checkpoint-every 1 --max-steps 8
  complains 'strays/checkpoint-00000001 is not removed: it holds "plots"'
  complains 'strays/checkpoint-00000002 is not removed: it holds "notes.txt"'
  [ "$(grep -c "is not removed" err)" = 2 ] || fail "a warning stands more than once"
  [ "$(cat strays/checkpoint-00000001/plots/loss.txt strays/checkpoint-00000002/notes.txt)" = $'mine\nmine' ] || fail "notes are lost"
  [ "$(ls strays | grep checkpoint)" = "$(printf 'checkpoint-%08d\n' 1 2 6 7 8)" ] || fail "other checkpoints stay: $(ls strays)"
  run 0 --evaluate --checkpoints strays --resume
}

one_process_trains_in_a_folder() {
  "$program" --threads 1 --epochs 1000 --checkpoints shared >first_out 2>first_err &
  local first=$! i
  for ((i = 0; i < 3000; ++i)); do
    [ -e shared/checkpoint-00000001 ] && break
    sleep 0.1
  done
  run 1 --checkpoints shared --resume --epochs 1000
  kill -TERM $first
  wait $first || true
  complains "--checkpoints shared: another process is training there"
}

output_that_does_not_arrive_is_an_error() {
  local code=0
  "$program" --max-steps 1 >/dev/full 2>err || code=$?
  [ $code = 1 ] || fail "exit code $code with a full device"
  complains "error: standard output: No space left on device"
  code=0
  "$program" --help >/dev/full 2>err || code=$?
  [ $code = 1 ] || fail "exit code $code of --help with a full device"
  # A reader who leaves does not end a run that saves something, and ends one that does not.
  set +o pipefail
  (until [ -e left ]; do sleep 0.05; done; exec "$program" --max-steps 30 --checkpoints piped --checkpoint-every 10 2>err) | (exec <&-; touch left)
  code=${PIPESTATUS[0]}
  [ "$code" = 1 ] || fail "exit code $code with a closed pipe"
  (until [ -e left ]; do sleep 0.05; done; exec "$program" --max-steps 30 2>other_err) | (exec <&-)
  code=${PIPESTATUS[0]}
  [ "$code" = 141 ] || fail "exit code $code with a closed pipe and nothing to save"
  set -o pipefail
  [ -e piped/checkpoint-00000003 ] || fail "the run did not go on"
  complains "error: standard output: Broken pipe"
}

a_disk_without_room_does_not_end_the_run() {
  (
    ulimit -f 200  # less than a checkpoint
    run 1 --epochs 1 --checkpoints small
    complains "warning: step 44 is not saved:"
    complains "File too large"
    complains "error: the last steps are in no checkpoint"
    says "test accuracy:"
    run 1 --epochs 1 --save-weights small.safetensors --report small.json
    says "test accuracy:"
    grep -q '"complete": true' small.json || fail "no report"
  )
}

# A folder in the place of best.safetensors stands for a disk without room, which can come and go within a run.
best_weights_that_cannot_be_saved_are_kept() {
  mkdir -p kept/best.safetensors
  run 1 --epochs 1 --checkpoints kept
  complains "warning: best.safetensors of step 44 is not saved:"
  complains "error: the best weights, of step 44, are in no best.safetensors:"
  quiet "best weights "
  mkdir -p late/best.safetensors two/{train,test}/{cat,dog}
  local i code=0 kind
  for kind in cat dog; do picture $kind | tee two/train/$kind/a.pgm >two/test/$kind/a.pgm; done
  # No test after one of 100 % is better, so that only another try saves its weights.
  "$program" --threads 1 --data two --epochs 100000 --lr 0.01 --schedule constant --warmup 0 --checkpoints late >out 2>err &
  for ((i = 0; i < 3000; ++i)); do
    grep -qs "test 100.00 %" out && break
    sleep 0.1
  done
  sleep 1  # by then the next save has tried again, too
  rmdir late/best.safetensors
  for ((i = 0; i < 3000; ++i)); do
    grep -qs "^best.safetensors of step [0-9]* is saved now" out && break
    sleep 0.1
  done
  kill -TERM $!
  wait $! || code=$?
  [ "$code" = 143 ] || fail "exit code $code after SIGTERM"
  says_like "^best.safetensors of step [0-9]* is saved now$"
  says "best weights late/best.safetensors"
  run 0 --evaluate --data two --load-weights late/best.safetensors && says "test accuracy: 100.0 %"
}

best_weights_that_are_gone_are_found_anew() {
  run 0 --epochs 3 --max-steps 60 --checkpoints gone
  rm gone/best.safetensors
  run 0 --checkpoints gone --resume --epochs 3
  complains "warning: gone/best.safetensors does not hold the best weights, of step 44; the search for them begins anew"
  says "best weights gone/best.safetensors"
}

messages_say_what_to_do() {
  run 1 --data nowhere && complains "error: --data nowhere: there is no such folder"
  touch a_file
  run 1 --data a_file && complains "--data a_file is a file; give the folder that holds the data"
  printf 'PK\3\4\0\0\10\10 archive/data.pkl' >weights.pth
  run 1 --load-weights weights.pth && complains "error: [pytorch] weights.pth: byte 3: expected the end record of an archive: the file is cut off"
  ("$program" --accumulate 1000 2>&1 || true) | cat >out
  head -n 1 out | grep -q "^handwritten digits" || fail "the error came before the banner"
  tail -n 1 out | grep -q "^error: " || fail "the error is not the last line"
  mkdir -p photos/{train,test}/{cat,dog}
  local kind
  for kind in train test; do
    { printf 'P6 3 2 255\n' && head -c 18 /dev/zero; } >photos/$kind/cat/a.ppm
    { printf 'P6 4 5 255\n' && head -c 60 /dev/zero; } >photos/$kind/dog/a.ppm
  done
  run 1 --data photos && complains "--image-size 224 (say) trains on crops of one size"
  run 0 --data photos --image-size 8 --crop-padding 2 --max-steps 1
  complains "passed over, as --image-size 8 crops images: --crop-padding"
  SINTER_LOG=loud run 0 --max-steps 1
  complains "SINTER_LOG must be trace, debug, info, warning, error or off but is 'loud'"
  run 1 --lr 1000 --schedule constant --warmup 0 --clip 0
  complains "--lr"
  ! grep -q "grad_scaler" err || fail "an inner name is told"
}

adamw_trains() {
  run 0 --optimizer adamw --epochs 4 --save-weights adamw.safetensors
  says "learning rate 0.003"
  awk '/^test accuracy/ { exit !($3 > 90) }' out || fail "it does not learn"
}

for test in mistakes_are_told_apart_and_exit_2 a_script_that_starts_it_is_named a_batch_of_more_than_there_is_is_told a_used_folder_is_not_begun_anew_in evaluating_needs_weights names_end_in_the_format outputs_are_probed_before_training \
  a_run_goes_on_with_its_own_recipe the_end_tells_how_to_go_on the_end_tells_what_is_left checkpoints_of_earlier_versions_go_on a_stopped_run_has_saved_everything \
  a_damaged_checkpoint_is_passed_over removing_old_checkpoints_takes_nothing_else one_process_trains_in_a_folder \
  output_that_does_not_arrive_is_an_error a_disk_without_room_does_not_end_the_run best_weights_that_cannot_be_saved_are_kept best_weights_that_are_gone_are_found_anew messages_say_what_to_do adamw_trains; do
  [ -z "${3:-}" ] || [ "$3" = "$test" ] || continue
  rm -f out err
  $test
  echo "$test: passed"
done
