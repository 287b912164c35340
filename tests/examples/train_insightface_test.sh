#!/usr/bin/env bash
# train_insightface as a user runs it, on made-up faces of 16x16 pixels: a run that is stopped ends with the weights and the log of one
# that is not, bit for bit; what it saves can be tested, turned into embeddings and loaded; mistakes are one clear line.
# Usage: train_insightface_test.sh <program> <sinter_pack> <folder>
export SINTER_DETERMINISTIC=1  # on a GPU, the fastest plans of a convolution may sum in any order
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
program=$1 pack=$2 work=$3
command=("$program" --threads 1)
begin_in "$work"

people people

# 120 images of 12 identities, of which 10 take part in a step: 12 steps an epoch.
small="$small_backbone --dims 8 --image-size 16 --batch 10 --lr 0.02 --epochs 1"
recipe="--synthetic 12 --sample-rate 0.1 --verify people --verify-every 5 $small"

a_run_tells_what_it_reached() {
  run 0 $recipe --checkpoints whole --save-weights whole.safetensors --report whole.json --export whole.onnx
  says_like '^made-up faces \(synthetic\): 120 images of 12 identities$'
  says_like '^step 5  people: accuracy [0-9.]+ \+- [0-9.]+ % \(36 pairs, threshold [0-9.]+, cosine [0-9.-]+\)  XNorm [0-9.]+  AUC [0-9.]+  TAR at FAR 1e-3 -, 1e-2 -  all 66 pairs, balanced: [0-9.]+ % at '
  says_like '^step 10  people'
  says_like '^step 12  people'
  says_like '^epoch   1/1  step 12  loss [0-9.]+  [0-9]+ samples/s  0.00 hours left  lr [0-9.e-]+  [0-9]+ % idle  peak [0-9.]+ GB$'
  says_like '^best weights whole/best.safetensors$'
  says_like '^checkpoint   whole/checkpoint-00000001$'
  says_like '^last weights whole.safetensors$'
  says_like '^ONNX         whole.onnx$'
  says_like '^curves       whole/curves.svg$'
  says_like '^TensorBoard  tensorboard --logdir whole$'
  says_like '^best verification accuracy: [0-9.]+ % at step (5|10|12)$'
  local key
  for key in '"complete": true' '"steps": 12' '"identities_a_step": 10' '"xnorm":' '"balanced_accuracy":'; do
    grep -q "$key" whole.json || fail "the report lacks $key"
  done
  local file
  for file in scalars.jsonl run.json report.json curves.svg best.safetensors checkpoint-00000001 roc-people.csv; do
    [ -e whole/$file ] || fail "no $file"
  done
  cmp whole.json whole/report.json
  # InsightFace's names. (Not out of a pipe, which breaks where grep has found its word before all is written.)
  head -c 40000 whole.safetensors >names
  for key in conv1.weight bn1.running_mean prelu.weight layer1.0.bn1.weight layer1.0.prelu.weight layer2.0.downsample.0.weight \
    layer4.1.bn3.bias bn2.weight fc.weight fc.bias features.weight features.running_var; do
    grep -qaF "\"$key\"" names || fail "the weights lack $key"
  done
  grep -qaF backbone names && fail "other names than InsightFace's"
  return 0
}

a_stopped_run_goes_on_bit_for_bit() {
  run 0 $recipe --checkpoints stopped --max-steps 3
  says_like '^stopped; go on with --checkpoints stopped --resume$'
  run 0 --checkpoints stopped --resume --max-steps 5 --workers 0  # where pairs are due, which comes first when it goes on
  says_like '^resumed stopped/checkpoint-00000001 at step 3$'
  run 0 --checkpoints stopped --resume --workers 2 --save-weights resumed.safetensors
  cmp whole.safetensors resumed.safetensors || fail "other weights"
  cmp whole/best.safetensors stopped/best.safetensors || fail "another best backbone"
  diff <(numbers whole) <(numbers stopped) || fail "another log"
  run 0 --checkpoints stopped --resume  # nothing is left to do
  says 'the epoch is done; --epochs <more> trains on'
}

margins_by_row_go_on_bit_for_bit() {
  local faces="--synthetic 12 --sample-rate 0.6 $small" margin
  for margin in "adaface --sub-centres 2" curricularface; do
    rm -rf by_row
    run 0 $faces --margin $margin --max-steps 4 --save-weights by_row.safetensors
    run 0 $faces --margin $margin --max-steps 2 --checkpoints by_row
    run 0 --checkpoints by_row --resume --max-steps 4 --save-weights by_row_resumed.safetensors
    cmp by_row.safetensors by_row_resumed.safetensors || fail "other weights with $margin"
  done
}

patience_waits_for_a_verification() {
  run 0 $recipe --epochs 30 --verify-every 24 --patience 1 --checkpoints patient --report patient.json  # twelve steps an epoch
  says_like '^step 48  people'  # the second, which may be better
  quiet 'epoch  30/30'
  local ended
  ended=$(sed -n 's/^ *"steps": \([0-9]*\),*$/\1/p' patient.json)
  cp -r people fewer_people && rm fewer_people/ann/1.pgm
  run 0 --checkpoints patient --resume --max-steps $((ended + 48)) --verify fewer_people --report other_pairs.json
  says "the pairs are others than before; the best weights are found anew"
  [ "$(sed -n 's/^ *"best_step": \([0-9]*\),*$/\1/p' other_pairs.json)" -ge "$ended" ] || fail "the best weights are those of other pairs"
}

data_are_cleaned_by_sub_centres() {
  run 0 --synthetic 12 $small --sub-centres 3 --head-precision f32 --power 1 --checkpoints sub
  run 0 --checkpoints sub --resume --clean kept.txt
  says_like '^[0-9]+ of 120 images are kept, as kept.txt lists them for --keep-images$'
  [ "$(wc -l <kept.txt)" -gt 1 ] || fail "no image is kept"
  run 1 --checkpoints sub --resume --sub-centres 4 --clean other.txt
  complains "has rows of 24 weights in its centres, which are not --sub-centres 4 of 8 dimensions"
  people cleaned_people
  run 0 --data cleaned_people $small --sub-centres 2 --max-steps 1 --checkpoints of_people
  mv cleaned_people/ann cleaned_people/zoe  # as many people, with other labels
  run 1 --checkpoints of_people --resume --clean other.txt && complains "is of other data"
  [ ! -e other.txt ] || fail "a list was written"
  head -60 kept.txt >some.txt
  run 0 --synthetic 12 --keep-images some.txt $small --max-steps 1 --checkpoints cleaned
  says_like '^made-up faces \(synthetic\): [0-9]+ images of [0-9]+ identities$'
  run 0 --checkpoints cleaned --resume --max-steps 2  # which remembers the list
  run 1 --synthetic 13 --keep-images kept.txt $small
  complains "--keep-images kept.txt: expected '# sinter: images kept of 130 images of 13 identities"
}

eager_steps_are_those_of_the_job() {
  run 0 $recipe --eager --verify-every 0 --save-weights eager.safetensors
  SINTER_PASSES=-all run 0 $recipe --verify-every 0 --save-weights job.safetensors  # rewrites keep tolerance, not bits
  cmp job.safetensors eager.safetensors || fail "other weights"
}

mixed_precision_goes_on_too() {
  local mixed="--synthetic 12 --sample-rate 0.1 $small --precision mixed-f16"
  run 0 $mixed --max-steps 4 --checkpoints mixed_whole
  run 0 $mixed --max-steps 2 --checkpoints mixed
  run 0 --checkpoints mixed --resume --max-steps 4
  local part
  for part in backbone centres optimizer scaler epoch_loss; do
    cmp mixed_whole/checkpoint-00000001/$part.safetensors mixed/checkpoint-00000002/$part.safetensors || fail "another $part"
  done
}

a_changed_recipe_goes_on_where_it_can() {
  run 0 --synthetic 12 --sample-rate 0.1 $small --epochs 2 --max-steps 14 --checkpoints changed
  run 0 --checkpoints changed --resume --batch 8 --sample-rate 0.9 --max-steps 17 --change-recipe
  says_like '^  --batch            10 -> 8$'
  says_like '^  epoch 2 is begun anew, as its batches are others$'
  run 0 --checkpoints changed --resume --epochs 3 --max-steps 18
  says_like 'the schedule is drawn over 3 epochs in place of 2'
}

what_was_trained_can_be_used() {
  local last image
  last=$(grep -o 'people: .*' <(sed -n 's/^step 12  //p' whole.out))
  run 0 --evaluate --load-weights whole.safetensors --verify people --report evaluated.json --roc curves --batch 10  # on a GPU last digits follow the batch
  [ "$(head -n 1 out)" = "$last" ] || fail "not what the run said: $last"
  [ "$(grep -cE '^ +[0-9]+ +[0-9.]+ % +[0-9.]+ +[0-9.-]+$' out)" = 10 ] || fail "not ten folds"
  grep -q '"accuracy":' evaluated.json || fail "no report"
  cmp whole/roc-people.csv curves/roc-people.csv || fail "another curve"
  [ "$(head -n 1 curves/roc-people.csv)" = "threshold,far,tar" ] || fail "no head of the curve"
  run 0 --evaluate --load-weights whole.safetensors --verify people --verify-flip off
  [ "$(head -n 1 out)" != "$last" ] || fail "mirror images count all the same"
  for image in 1 2 3; do printf 'ann/%d.pgm ann/4.pgm 1\nbob/%d.pgm bob/4.pgm 1\nann/%d.pgm eve/4.pgm 0\neve/%d.pgm bob/%d.pgm 0\n' \
    $image $image $image $image $image; done >people/some_pairs.lst
  run 0 --evaluate --load-weights whole.safetensors --verify people --verify people/some_pairs.lst
  says_like '^people: ' && says_like '^some_pairs: accuracy [0-9.]+ \+- [0-9.]+ % \(12 pairs, threshold [0-9.]+, cosine [0-9.-]+\)  XNorm [0-9.]+  AUC [0-9.]+  TAR at FAR 1e-3 -, 1e-2 -$'
  run 0 --evaluate --checkpoints whole --resume
  [ "$(head -n 1 out)" = "$last" ] || fail "not what the run said: $last"
  run 0 --embed people --output all.csv --load-weights whole/best.safetensors --lr 0.3
  complains "passed over, as nothing is trained: --lr"
  says_like '^12 embeddings of 8 dimensions written to all.csv$'
  [ "$(cut -d, -f1 all.csv | head -n 5 | paste -sd ' ')" = "ann/1.pgm ann/2.pgm ann/3.pgm ann/4.pgm bob/1.pgm" ] || fail "other paths"
  awk -F, '{ s = 0; for (i = 2; i <= NF; ++i) s += $i * $i; if (NF != 9 || s < 0.9999 || s > 1.0001) exit 1 }' all.csv || fail "not of length one"
  run 0 --embed people --output plain.csv --load-weights whole/best.safetensors --verify-flip off
  ! grep -q "passed over" err || fail "--verify-flip is not taken"
  ! cmp -s plain.csv all.csv || fail "mirror images count all the same"
  run 0 --embed people --embed-groups --output groups.csv --load-weights whole/best.safetensors
  [ "$(cut -d, -f1 groups.csv | paste -sd ' ')" = "ann bob eve" ] || fail "other folders"
  awk -F, '{ s = 0; for (i = 2; i <= NF; ++i) s += $i * $i; if (NF != 9 || (s > 0.99 && s < 1.01)) exit 1 }' groups.csv || fail "their lengths are lost"
  run 0 --embed people --output all.safetensors --checkpoints whole --resume
  head -c 400 all.safetensors | grep -qaF '"embeddings"' || fail "no embeddings"
  # Without metadata there are no data that could be taken for them, unless it trains.
  LC_ALL=C sed 's/model_metadata_version/xodel_metadata_version/' whole.safetensors >bare.safetensors
  run 0 --embed people --output bare.csv --load-weights bare.safetensors && quiet "those of the data are taken"
  run 0 --evaluate --load-weights bare.safetensors --verify people && quiet "those of the data are taken"
  run 0 --synthetic 12 $small --load-weights bare.safetensors --max-steps 1 && says "those of the data are taken for them"
  # A backbone that was trained before starts another run: the first loss is another one than with fresh weights.
  run 0 --synthetic 12 $small --load-weights whole.safetensors --max-steps 1
}

ijb_is_tested_with_embeddings_from_elsewhere() {
  mkdir -p ijb/loose_crop ijb/meta
  local i person
  for i in 1 2 3 4 5 6 7 8 9; do person=$(printf 'ann\nann\nann\nbob\nbob\nbob\neve\neve\neve\n' | sed -n ${i}p); cp people/$person/$((i % 3 + 1)).pgm ijb/loose_crop/$i.jpg; done
  for i in 1 2 3 4 5 6 7 8 9; do echo "$i.jpg $i 1" >&3; echo "$i.jpg 5 5 11 5 8 8 6 12 10 12 0.9" >&4; done 3>ijb/meta/ijbb_face_tid_mid.txt 4>ijb/meta/ijbb_name_5pts_score.txt
  local a b
  for a in 1 2 3 4 5 6 7 8 9; do for ((b = 1; b < a; ++b)); do echo "$a $b $(((a - 1) / 3 == (b - 1) / 3))"; done; done >ijb/meta/ijbb_template_pair_label.txt
  run 0 --embed ijb/loose_crop --output ijb.safetensors --load-weights whole.safetensors
  run 0 --ijb ijb --ijb-embeddings ijb.safetensors --report ijb.json --roc ijb-curves
  says_like '^ijbb: 9 pictures in 9 templates$' && says_like '^1:1  9 genuine pairs, 27 impostors, AUC [0-9.]+$' && says_like '^1:N  the set has no files for it$'
  says_like '^ +1e-01 +2\* ' && [ "$(head -n 1 ijb-curves/roc-ijbb.csv)" = threshold,far,tar ] || fail "no curve"
  grep -q '"lengths": "keep"' ijb.json || fail "no report"
  run 0 --ijb ijb --ijb-embeddings ijb.safetensors --ijb-lengths unit --ijb-score ignore --report unit.json
  grep -q '"lengths": "unit"' unit.json && grep -q '"score": "ignore"' unit.json || fail "options are not in the report"
  run 1 --ijb ijb --load-weights whole.safetensors
  complains "--ijb: faces are aligned to a multiple of 112 or 128 pixels, --image-size is 16"
  run 2 --ijb ijb && complains "--ijb needs weights: --load-weights <file>"
  run 2 --ijb ijb --embed people --output x.csv --load-weights whole.safetensors && complains "--ijb and --embed cannot go together"
  sed -i 3d ijb/meta/ijbb_name_5pts_score.txt
  run 1 --ijb ijb --ijb-embeddings ijb.safetensors
  complains "--ijb ijb: [faces] ijb/meta/ijbb_name_5pts_score.txt, line 3: expected '3.jpg', as in line 3 of ijb/meta/ijbb_face_tid_mid.txt, but got '4.jpg"
}

records_and_folders_train_alike() {
  "$pack" people packed >/dev/null 2>&1
  run 0 --data people $small --batch 4 --save-weights folder.safetensors
  says_like '^people \(folder of people\): 12 images of 3 identities$'
  run 0 --data packed $small --batch 4 --save-weights records.safetensors
  says_like '^packed \(records\): 12 images of 3 identities$'
  cmp <(tensors folder.safetensors) <(tensors records.safetensors) || fail "other weights"
  run 0 --data packed/train.rec $small --batch 4 --max-steps 1
}

damaged_images_are_counted() {
  cp -r people damaged && head -c 100 people/bob/2.pgm >damaged/bob/2.pgm
  run 1 --data damaged $small --batch 4 && complains "damaged/bob/2.pgm"
  run 0 --data damaged $small --batch 4 --max-damaged 1 --save-weights damaged.safetensors --report damaged.json
  says_like '^damaged: 1 of 12 training images so far, each replaced by the next sound one; the first: .*damaged/bob/2.pgm'
  grep -q '"damaged_images": 1' damaged.json || fail "not in the report"
  cp -r people mended && cp people/bob/3.pgm mended/bob/2.pgm
  run 0 --data mended $small --batch 4 --save-weights mended.safetensors
  cmp <(tensors damaged.safetensors) <(tensors mended.safetensors) || fail "another image stands in"
}

identities_are_compared_by_name() {
  cp -r people crowd
  run 0 --data crowd $small --batch 4 --checkpoints named --max-steps 1
  grep -qF '\"classes\":[\"ann\",\"bob\",\"eve\"]' named/checkpoint-00000001/state.json || fail "the checkpoint lacks the identities"
  grep -qF '"classes":["ann","bob","eve"]' <(tr -d ' \n' <named/run.json) || fail "run.json lacks the identities"
  head -c 2000 whole/best.safetensors >head
  for key in '"task":"image-feature-extraction"' '"model":"iresnet18"' '"resize":"exact"' '"mean":"[0.5,0.5,0.5]"' '"classes":"[]"'; do  # of numbers, millions would fill the file
    grep -qaF "$key" head || fail "best.safetensors lacks $key"
  done
  mv crowd/bob crowd/cat
  run 1 --checkpoints named --resume
  complains "error: named/checkpoint-00000001 is of other data: class 1 was 'bob', is 'cat' now; --change-recipe goes on with them"
  mv crowd/cat crowd/bob && rm crowd/eve/4.pgm && cp crowd/eve/3.pgm crowd/eve/5.pgm
  run 1 --checkpoints named --resume
  complains "is of other data: names, sizes or labels of the 12 images are others"
  run 0 --checkpoints named --resume --change-recipe --max-steps 2
  says_like "epoch 1 is begun anew"
  run 1 --data people $small --checkpoints fresh --resume --log-dir named
  complains "--log-dir named holds the log of run "
}

a_stop_signal_saves() {
  local code=0 i
  "$program" --threads 1 --synthetic 12 $small --epochs 1000 --checkpoints signalled >out 2>err &
  for ((i = 0; i < 3000; ++i)); do
    grep -qs "^epoch   1/1000" out && break
    sleep 0.1
  done
  run_again=$!
  kill -TERM $run_again
  wait $run_again || code=$?
  [ "$code" = 143 ] || fail "exit code $code after SIGTERM"
  says_like '^stopped; go on with --checkpoints signalled --resume$'
  [ -e signalled/checkpoint-00000001 ] || fail "no checkpoint"
}

mistakes_are_told() {
  run 2 && complains "there is nothing to train on: --data <path>, or --synthetic <identities>"
  run 2 --synthetic 12 --sampel-rate 0.1 && complains "there is no option --sampel-rate; did you mean --sample-rate?"
  run 1 --data nowhere && complains "--data nowhere: there is no such file or folder"
  run 1 --data people/ann/1.pgm && complains "give a .rec file, or the folder that holds the data"
  run 1 $recipe --verify nowhere && complains "--verify nowhere: there is no such file or folder"
  run 1 $recipe --checkpoints whole && complains "--checkpoints whole holds a run already"
  run 1 --checkpoints whole --resume --lr 0.3 && complains "--lr               0.02 -> 0.3"
  cp -r whole lost && rm lost/best.safetensors
  run 0 --checkpoints lost --resume --epochs 2
  complains "warning: lost/best.safetensors does not hold the best weights, of step"
  [ -e lost/best.safetensors ] || fail "the best weights are not found anew"
  run 1 --checkpoints whole --resume --dims 16 --change-recipe && complains "has --dims 8; it cannot go on with 16"
  run 1 --checkpoints whole --resume --width 16 --change-recipe && complains "has --width $width; it cannot go on with 16"
  run 1 --checkpoints nowhere --resume && complains "there is no checkpoint in nowhere"
  run 1 $recipe --roc people/ann/1.pgm && complains "--roc people/ann/1.pgm"
  run 1 $recipe --save-weights nowhere/x && complains "--save-weights nowhere/x: there is no folder nowhere"
  run 1 --embed people --output nowhere/x.csv --load-weights whole.safetensors && complains "--output nowhere/x.csv: there is no folder nowhere"
  run 1 --evaluate --load-weights whole.safetensors --verify people --backbone iresnet34 &&
    complains "error: --load-weights whole.safetensors: these are weights of an iresnet18, --backbone says iresnet34"
  run 0 $recipe --max-steps 1 --save-weights one.pth
  [ "$(head -c 2 one.pth)" = PK ] || fail "one.pth is no file of PyTorch's"
  run 0 --evaluate --load-weights one.pth --verify people
  run 1 --evaluate --load-weights one.pth --key nowhere --verify people && complains "error: --key nowhere: "
  run 0 --version && says_like "^train_insightface of Sinter "
  run 0 --help && says_like "--sample-rate"
}

a_backbone_is_exported() {
  run 0 --evaluate --load-weights whole.safetensors --export loaded.onnx && says_like "^model exported to loaded.onnx$"
  cmp whole.onnx loaded.onnx || fail "the same weights were exported otherwise"
  grep -qaF layer4.1.prelu.weight loaded.onnx || fail "no names in loaded.onnx"
  run 0 --evaluate --checkpoints whole --resume --export bytes.onnx --export-preprocessing uint8
  says_like '^people: ' && grep -qaF preprocessing/scale bytes.onnx || fail "no preprocessing"
}

a_recipe_may_stand_in_a_file() {
  echo '{"synthetic": 12, "backbone": "iresnet18", "width": '$width', "dims": 8, "image-size": 16, "batch": 10, "lr": 0.02, "epochs": 1, "flip": false}' >recipe.json
  run 0 --recipe recipe.json --lr 0.01 --max-steps 2 --write-recipe whole_recipe.json --save-weights from_file.safetensors
  for line in '"lr": 0.01,' '"dims": 8,' '"flip": false,' '"margin": "arcface",'; do
    grep -qF "$line" whole_recipe.json || fail "the recipe that was written lacks $line"
  done
  run 0 --synthetic 12 --recipe whole_recipe.json --max-steps 2 --save-weights again.safetensors
  cmp from_file.safetensors again.safetensors || fail "the recipe of a run gave another run"
  [ -s whole/recipe.json ] || fail "the folder of a run has no recipe"
  echo '{"backbon": "iresnet18"}' >mistyped.json
  run 2 --synthetic 12 --recipe mistyped.json
  complains "--recipe mistyped.json: there is no option 'backbon'; did you mean 'backbone'?"
}

every_option_has_a_test() {
  local option missing=""
  for option in $("$program" --help | sed -nE 's/^  (-h,)?(--[a-z-]+).*/\2/p'); do
    case $option in --help|--version|--device|--workers) continue;; esac  # which change no result
    grep -qF -- "$option" "$here"/train_insightface_options_test.cpp "$here"/train_insightface_ranks_test.sh ||
      grep -qE -- "(run|options|^ ) .*$option" "$here"/train_insightface_test.sh "$here"/train_insightface_course_test.sh "$here"/train_insightface_plan_test.sh ||
      missing="$missing $option"
  done
  [ -z "$missing" ] || fail "no test has$missing"
}

for test in a_run_tells_what_it_reached a_stopped_run_goes_on_bit_for_bit margins_by_row_go_on_bit_for_bit patience_waits_for_a_verification data_are_cleaned_by_sub_centres eager_steps_are_those_of_the_job mixed_precision_goes_on_too a_changed_recipe_goes_on_where_it_can \
  what_was_trained_can_be_used ijb_is_tested_with_embeddings_from_elsewhere records_and_folders_train_alike damaged_images_are_counted identities_are_compared_by_name a_stop_signal_saves mistakes_are_told a_backbone_is_exported a_recipe_may_stand_in_a_file every_option_has_a_test; do
  rm -f out err
  $test
  [ $test != a_run_tells_what_it_reached ] || cp out whole.out
  echo "$test: passed"
done
