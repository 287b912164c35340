#!/usr/bin/env bash
# What outputs mean goes with them: a run goes on with its own classes, data and log alone, weights say what they are of, and what
# does not fit is one sentence. Usage: train_resnet_meaning_test.sh <program> <folder>
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
program=$1 work=$2
command=("$program" --threads 1 --workers 0)
begin_in "$work"

loss() { sed -n 's/^ *"test_loss": //p' "$1"; }

# Three classes of grey images of 8x8 pixels, which differ: four to train on and two to test on each.
make_data() {
  local part class image
  for part in train test; do
    for class in a b c; do
      mkdir -p "$1/$part/$class"
      for image in 1 2 3 4; do
        [ $part = train ] || [ $image -lt 3 ] || continue
        picture "$class $image $part" 8 >"$1/$part/$class/$image.pgm"
      done
    done
  done
}
# both COMMAND A B: does the same to the training and the test images of `data`.
both() { local part; for part in train test; do "$1" "data/$part/$2" "data/$part/$3"; done; }
copy() { cp -r "$1" "$2"; }
make_data whole
fresh() { rm -rf data && cp -r whole data; }

a_run_says_what_it_means() {
  fresh
  run 0 --data data --epochs 1 --batch 6 --checkpoints run --save-weights w.safetensors
  cp run/best.safetensors best.safetensors
  local key file
  for key in '"model": "resnet20"' '"small_stem"\|"in_channels": "3"' '"data_fingerprint": "[0-9a-f]*"' '"run": "[0-9a-f]*"' '"mean": \['; do
    grep -q "$key" run/run.json || fail "run.json lacks $key"
  done
  grep -qF '"classes":["a","b","c"]' <(tr -d ' \n' <run/run.json) || fail "run.json lacks the classes"
  grep -qF '\"classes\":[\"a\",\"b\",\"c\"]' run/checkpoint-*/state.json || fail "the checkpoint lacks the classes"
  for file in w best; do
    head -c 2000 $file.safetensors >head
    for key in '"classes":"[\"a\",\"b\",\"c\"]"' '"task":"image-classification"' '"model":"resnet20"' '"channels":"3"' '"height":"8"' '"data_fingerprint"'; do
      grep -qaF "$key" head || fail "$file.safetensors lacks $key"
    done
  done
}

# refused_to_go_on WORDS: by --resume, which changes nothing.
refused_to_go_on() {
  local before
  before=$(contents run)
  run 1 --checkpoints run --resume --epochs 2
  quiet "epoch "
  complains "error: run/checkpoint-00000001 is of other $1"
  [ "$(contents run)" = "$before" ] || fail "a refused run has changed the folder"
}

other_classes_are_refused_by_name() {
  local words
  fresh && both mv c d  # at the same place
  words="class 2 was 'c', is 'd' now"
  refused_to_go_on "data: $words; --change-recipe goes on with them"
  run 1 --checkpoints run --resume --evaluate && complains "run/checkpoint-00000001 is of other classes: $words"
  run 1 --evaluate --load-weights w.safetensors --data data && complains "--load-weights w.safetensors is of other classes: $words"
  run 0 --load-weights w.safetensors --data data --epochs 1 --batch 6 && says "is of other classes, whose place the data's take: $words"
  fresh && both mv a z  # behind all others
  words="class 0 was 'a', is 'b' now, class 1 was 'b', is 'c' now, class 2 was 'c', is 'z' now; gone: 'a'; new: 'z'"
  refused_to_go_on "data: $words; --change-recipe"
  run 1 --checkpoints run --resume --evaluate && complains "$words"
  fresh && rm -r data/*/b
  words="there were 3 classes, there are 2 now; gone: 'b'"
  refused_to_go_on "classes: $words"
  run 1 --evaluate --load-weights w.safetensors --data data && complains "$words"
  fresh && both copy c d
  refused_to_go_on "classes: there were 3 classes, there are 4 now; new: 'd'"
}

other_data_are_refused() {
  fresh && mv data/train/a x && mv data/train/b data/train/a && mv x data/train/b
  refused_to_go_on "data: names, sizes or labels of the 12 images are others; --change-recipe goes on with them"
  fresh && rm data/train/a/4.pgm
  refused_to_go_on "data: there were 12 images, there are 11 now"
  fresh && mv data/train/a/4.pgm data/train/a/5.pgm
  refused_to_go_on "data: names, sizes or labels"
  run 0 --checkpoints run --resume --evaluate  # whose meaning is the same
  cp -r run changed
  run 0 --checkpoints changed --resume --epochs 2 --change-recipe
  says "changed data: names, sizes or labels of the 12 images are others"
  says "epoch 2 is begun anew, as its batches are others"
  # Wherever they lie, and whenever they were copied.
  fresh && mv data moved && find moved -exec touch -d 2001-01-01 {} +
  cp -r run moved_run
  run 0 --checkpoints moved_run --resume --data moved --epochs 2
  quiet "begun anew"
  rm moved/test/a/2.pgm
  run 0 --checkpoints moved_run --resume --epochs 3 --report other_test.json
  says "the test images are others than before; the best weights are found anew"
  grep -q '"best_step": 6' other_test.json || fail "the best weights are those of other images"
}

weights_say_what_they_are_of() {
  fresh
  run 0 --data data --epochs 1 --batch 6 --model resnet32 --image-size 12 --test-crop 0.5 --save-weights other.safetensors --report before.json
  # Neither --model, --image-size nor --test-crop is needed; and inputs are normalised as they were, whatever there is to train on.
  head -c 64 </dev/zero >zeros
  for class in a b c; do { printf 'P5 8 8 255\n'; cat zeros; } >data/train/$class/1.pgm; done
  run 0 --evaluate --load-weights other.safetensors --data data --report after.json
  [ -n "$(loss before.json)" ] && [ "$(loss after.json)" = "$(loss before.json)" ] || fail "$(loss after.json) in place of $(loss before.json)"
  says "resnet32"
  run 1 --evaluate --load-weights other.safetensors --data data --model resnet20
  [ "$(cat err)" = "error: --load-weights other.safetensors: these are weights of a resnet32, --model says resnet20; --model resnet32 fits" ] || fail "other words"
  run 1 --evaluate --load-weights w.safetensors
  complains "--load-weights w.safetensors is of other classes: there were 3 classes, there are 10 now"
  # Without metadata, as PyTorch writes it.
  LC_ALL=C sed 's/model_metadata_version/xodel_metadata_version/' w.safetensors >bare.safetensors
  run 1 --evaluate --load-weights bare.safetensors
  says "--load-weights bare.safetensors does not say which classes and images it is of; those of the data are taken for them"
  [ "$(cat err)" = "error: --load-weights bare.safetensors: these are weights with 3 classes, the data has 10" ] || fail "other words"
  run 0 --evaluate --load-weights bare.safetensors --data whole
  LC_ALL=C sed 's/"classes":"\[/"classes":"{/' w.safetensors >damaged.safetensors
  run 1 --evaluate --load-weights damaged.safetensors --data whole
  complains 'damaged.safetensors: "classes" is missing or damaged'
  # Metadata of other channels than the weights' say nothing of them, and go into no other file.
  local wrong
  for wrong in 's/"mean":"[^"]*"/"mean":"[0.5]"/' 's/"std":"[^"]*"/"std":"[]"/' 's/"channels":"3"/"channels":"1"/'; do
    edited w.safetensors "$wrong" >damaged.safetensors
    for wrong in --evaluate "--epochs 1 --batch 6" "--epochs 1 --batch 6 --freeze-trunk 1"; do
      run 1 $wrong --load-weights damaged.safetensors --data whole --save-weights none.safetensors
      complains_like "^error: --load-weights damaged.safetensors: its metadata are damaged: images of [13] channels?, [13] means? and [03] deviations, for weights for images of 3$"
      [ ! -e none.safetensors ] || fail "it is passed on"
    done
  done
}

# mean FILE: of its images, as its metadata have it.
mean() { head -c 2000 "$1" | LC_ALL=C sed -nE 's/.*"mean":"\[([^]]*)\]".*/\1/p'; }
has_imagenets() { [[ $(mean "$1") =~ ^0\.48[45][0-9]*,0\.45[56][0-9]*,0\.40[56][0-9]*$ ]] || fail "$1 has the mean $(mean "$1")"; }

# One rule for weights that do not say how their images are normalised, whatever is done with them.
weights_that_do_not_say_it_are_normalised_as_imagenets() {
  local words="--load-weights coloured.safetensors does not say how its images are normalised; as ImageNet's are, unless --normalization says otherwise"
  run 0 --data whole --epochs 1 --batch 6 --save-weights own.safetensors
  LC_ALL=C sed 's/model_metadata_version/xodel_metadata_version/' own.safetensors >coloured.safetensors
  local bare=(--data whole --batch 6 --load-weights coloured.safetensors)
  run 0 "${bare[@]}" --evaluate --save-weights x.safetensors --export x.onnx --report assumed.json
  complains "$words" && has_imagenets x.safetensors
  grep -qa '\[0\.48[45]' x.onnx || fail "another normalisation is exported"
  run 0 "${bare[@]}" --epochs 1 --freeze-trunk 1 --save-weights x.safetensors && complains "$words" && has_imagenets x.safetensors
  run 0 "${bare[@]}" --epochs 1 --freeze-trunk 1 --processes 2 --save-weights x.safetensors && has_imagenets x.safetensors
  [ "$(grep -cF -- "$words" err)" = 1 ] || fail "not said once"
  run 0 --predict whole/test --load-weights coloured.safetensors --image-size 8 && complains "$words"
  run 0 --load-weights coloured.safetensors --image-size 8 --export y.onnx && complains "$words"
  grep -qa '\[0\.48[45]' y.onnx || fail "another normalisation is exported"
  # Trained further they follow their data.
  run 0 "${bare[@]}" --epochs 1 --save-weights x.safetensors && ! grep -qF "ImageNet" err || fail "data's own is not taken"
  [ "$(mean x.safetensors)" = "$(mean own.safetensors)" ] || fail "not the data's: $(mean x.safetensors)"
  # What is asked for.
  run 0 --data whole --load-weights own.safetensors --evaluate --report own.json
  run 0 "${bare[@]}" --evaluate --normalization data --report asked.json && ! grep -qF "ImageNet" err || fail "not as it was asked"
  [ "$(loss asked.json)" = "$(loss own.json)" ] || fail "$(loss asked.json) in place of $(loss own.json)"
  [ "$(loss assumed.json)" != "$(loss own.json)" ] || fail "ImageNet's is the data's"
  run 0 "${bare[@]}" --epochs 1 --normalization imagenet --save-weights x.safetensors && has_imagenets x.safetensors
  run 0 "${bare[@]}" --epochs 1 --normalization 0.5/0.25 --checkpoints asked --save-weights x.safetensors --max-steps 1
  [ "$(mean x.safetensors)" = 0.5,0.5,0.5 ] || fail "not what was asked for: $(mean x.safetensors)"
  run 0 --checkpoints asked --resume --save-weights x.safetensors
  [ "$(mean x.safetensors)" = 0.5,0.5,0.5 ] || fail "forgotten: $(mean x.safetensors)"
  run 0 --checkpoints asked --resume --load-weights coloured.safetensors --normalization 0.5/0.25  # as it began
  local before choice how
  before=$(contents asked)
  for choice in imagenet auto 0.5/0.26; do
    for how in "" --change-recipe --evaluate "--change-recipe --epochs 2"; do
      run 1 --checkpoints asked --resume --normalization $choice $how
      complains_like "^error: asked/checkpoint-[0-9]+ says how its images are normalised; leave --normalization out"
    done
  done
  [ "$(contents asked)" = "$before" ] || fail "a refused run has changed the folder"
  run 1 --checkpoints unbegun --resume --data whole --normalization imagenet && complains "--normalization needs --load-weights <file>"
  run 0 "${bare[@]}" --recipe asked/recipe.json --evaluate --save-weights x.safetensors
  [ "$(mean x.safetensors)" = 0.5,0.5,0.5 ] || fail "not the recipe's: $(mean x.safetensors)"
  run 1 --data whole --load-weights own.safetensors --normalization data
  complains "error: --load-weights own.safetensors says how its images are normalised; leave --normalization out"
  # Grey images have no usual one.
  run 0 --epochs 1 --max-steps 1 --save-weights grey.safetensors
  LC_ALL=C sed 's/model_metadata_version/xodel_metadata_version/' grey.safetensors >grey_bare.safetensors
  run 0 --load-weights grey_bare.safetensors --evaluate --save-weights x.safetensors && ! grep -qF "ImageNet" err || fail "grey images as ImageNet's"
  [ "$(mean x.safetensors)" = "$(mean grey.safetensors)" ] || fail "not the data's: $(mean x.safetensors)"
  run 1 --load-weights grey_bare.safetensors --evaluate --normalization 0.5,0.4,0.4/0.2,0.2,0.2
  complains "is of 3 channels, --load-weights grey_bare.safetensors of images with 1"
  # What does not fit is said first, of the weights and the data as they are.
  mkdir -p ten/train ten/test
  for choice in 0 1 2 3 4 5 6 7 8 9; do cp -r whole/train/a ten/train/$choice && cp -r whole/test/a ten/test/$choice; done
  run 0 --data ten --epochs 1 --max-steps 1 --batch 6 --save-weights ten.safetensors
  LC_ALL=C sed 's/model_metadata_version/xodel_metadata_version/' ten.safetensors >ten_bare.safetensors
  for choice in imagenet 0.1,0.2,0.3/0.1,0.2,0.3 0.5/0.25 auto; do
    run 1 --load-weights ten_bare.safetensors --evaluate --normalization $choice
    [ "$(cat err)" = "error: --load-weights ten_bare.safetensors: these are weights for images of 3 channels, the data's have 1" ] || fail "other words"
    run 1 --load-weights grey_bare.safetensors --evaluate --data ten --normalization $choice
    [ "$(cat err)" = "error: --load-weights grey_bare.safetensors: these are weights for images of 1 channel, the data's have 3" ] || fail "other words"
  done
  run 2 --data whole --normalization imagenet && complains "--normalization needs --load-weights <file>"
  run 2 --load-weights coloured.safetensors --export z.onnx --normalization data && complains "there are none with --export alone"
  local wrong
  for wrong in imagnet 0.5 0.5/ 0.5/0 0.5,0.5/0.2,0.2 0.5/0.2,0.2,0.2 127.5/127.5 -0.5/0.5 nan/1 0.5/0.25/1; do
    run 2 "${bare[@]}" --evaluate --normalization=$wrong
    complains "--normalization: expected auto, imagenet, data, or means and deviations of pixels from 0 to 1"
  done
}

a_mistyped_folder_begins_nothing() {
  run 1 --checkpoints mistyped --resume
  complains "error: there is no checkpoint in mistyped; to begin a run there: --data <folder>"
  [ ! -e mistyped ] || fail "the folder was made"
  mkdir parent && cp -r run parent/run
  run 1 --checkpoints parent --resume --epochs 60 && complains "there is no checkpoint in parent"
  run 0 --checkpoints job --resume --data whole --epochs 1 --batch 6 --max-steps 1  # as scripts of jobs do from the start
  says "no checkpoint yet in job"
  run 0 --checkpoints job --resume
  local name
  name=$(printf 'caf\351')
  cp -r whole "$name" 2>/dev/null || return 0  # a file system of UTF-8 alone
  run 0 --checkpoints named --data "$name" --epochs 1 --batch 6 --max-steps 1
  run 0 --checkpoints named --resume && quiet "handwritten digits"
}

a_run_without_a_checkpoint_begins_again_as_it_was() {
  local options="--checkpoints early --data whole --epochs 1 --batch 6 --max-steps 1"
  run 0 $options && rm -r early/checkpoint-*  # as if it was killed in its first epoch
  cp early/recipe.json before.json
  run 1 --checkpoints early --resume
  complains "error: the run in early was stopped before its first checkpoint; begin it again with its own options: --threads 1 --workers 0 $options --resume"
  cmp before.json early/recipe.json || fail "the recipe is another"
  run 0 $options --resume && says "no checkpoint yet in early"
  options="--checkpoints digits --epochs 1 --max-steps 1"  # says of no data either
  run 0 $options && rm -r digits/checkpoint-*
  run 1 --checkpoints digits --resume && complains "stopped before its first checkpoint"
  run 0 $options --resume && says "handwritten digits"
}

a_log_is_of_one_run() {
  local small="--data whole --epochs 1 --batch 6" first second before
  run 0 $small --checkpoints one --log-dir log1
  run 0 $small --checkpoints two --log-dir log2 --max-steps 1
  first=$(sed -n 's/^  "run": "\(.*\)",$/\1/p' log1/run.json) second=$(sed -n 's/^  "run": "\(.*\)",$/\1/p' log2/run.json)
  [ -n "$first" ] && [ -n "$second" ] && [ "$first" != "$second" ] || fail "runs have no names: $first, $second"
  before=$(contents log1)
  run 1 --checkpoints two --resume --log-dir log1
  complains "--log-dir log1 holds the log of run $first (checkpoints in $PWD/one), but two is of run $second; name another folder"
  run 1 $small --checkpoints three --resume --log-dir log1  # which has no checkpoint yet
  complains "--log-dir log1 holds the log of run $first"
  [ "$(contents log1)" = "$before" ] || fail "another run's log has changed"
  run 0 --checkpoints two --resume --log-dir log2
  [ "$(sed -n 's/^  "run": "\(.*\)",$/\1/p' log2/run.json)" = "$second" ] || fail "the run has another name"
  run 0 --checkpoints two --resume --epochs 2 --log-dir new  # a new one may begin
  rm new/scalars.jsonl
  run 0 --checkpoints two --resume --epochs 3 --log-dir new
  complains "warning: new/scalars.jsonl is gone; what was logged up to step 4 is lost"
}

for test in a_run_says_what_it_means other_classes_are_refused_by_name other_data_are_refused weights_say_what_they_are_of weights_that_do_not_say_it_are_normalised_as_imagenets \
  a_mistyped_folder_begins_nothing a_run_without_a_checkpoint_begins_again_as_it_was a_log_is_of_one_run; do
  rm -f out err
  $test
  echo "$test: passed"
done
