#!/usr/bin/env bash
# What train_resnet does with data as people have it: folders without test images or with images to choose by, tar shards, weights of
# classes, images that grow, and files that are damaged.
# Usage: train_resnet_data_test.sh <program> <folder>
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
program=$1 work=$2
command=("$program" --threads 1)
begin_in "$work"

# Grey images of 16x16 pixels, all different: 20 ants and 12 bees.
mkdir -p photos/{ant,bee}
for i in $(seq 10 29); do picture "ant $i" >photos/ant/$i.pgm; done
for i in $(seq 10 21); do picture "b $i" >photos/bee/$i.pgm; done
small="--epochs 2 --batch 8"

a_folder_is_split_by_its_seed() {
  run 1 --data photos $small
  complains "--data photos: it has 2 classes (ant, bee), but no train/ and test/; --split 0.1 tests with a tenth of each"
  run 0 --data photos --split 0.25 $small --save-weights first.safetensors
  says "photos (image folder): 24 training and 8 test images in 2 classes"
  run 0 --data photos --split 0.25 $small --save-weights again.safetensors
  cmp first.safetensors again.safetensors || fail "another split"
  run 0 --data photos --split 0.25 $small --seed 1 --save-weights other.safetensors
  ! cmp -s first.safetensors other.safetensors || fail "the same split by another seed"
  run 0 --data photos --split 0.25 $small --checkpoints run --max-steps 2
  run 0 --checkpoints run --resume --save-weights resumed.safetensors
  says "24 training and 8 test images"
  cmp first.safetensors resumed.safetensors || fail "another split after a resume"
  run 1 --checkpoints run --resume --split 0.5 && complains "--split            0.25 -> 0.5"
  mkdir -p both/test/{ant,bee} && cp -r photos both/train
  run 1 --data both --split 0.25 && complains "has images to test on"
  run 2 --split 0.25 && complains "--split needs --data"
  run 2 --data photos --split 1 && complains "--split: expected a number from 0 to 0.9"
}

shards_train_as_their_folder_does() {
  mkdir -p loose shards divided
  local i class label=0 name=1000
  for class in ant bee; do
    for i in photos/$class/*.pgm; do
      cp "$i" loose/$name.pgm && echo $label >loose/$name.cls && name=$((name + 1))
    done
    label=$((label + 1))
  done
  printf 'ant\nbee\n' >shards/classes.txt
  (cd loose && tar --format=ustar -cf ../shards/train-0.tar --sort=name 100* && tar --format=pax -cf ../shards/train-1.tar --sort=name 101* 102* 103*)
  (cd loose && tar --format=gnu -cf ../shards/val-0.tar --sort=name 1005* 1025*)
  run 0 --data shards $small --save-weights shards.safetensors
  says "shards (shards): 32 training and 2 test images in 2 classes"
  mkdir -p whole/val/{ant,bee} && cp -r photos whole/train && cp photos/ant/15.pgm whole/val/ant && cp photos/bee/15.pgm whole/val/bee
  run 0 --data whole $small --save-weights whole.safetensors
  cmp <(tensors whole.safetensors) <(tensors shards.safetensors) || fail "other weights than those of the folder"
  cp -r shards both-shards && cp shards/val-0.tar both-shards/test-0.tar
  run 0 --data both-shards $small --max-steps 1
  says "both-shards (shards): 32 training and 2 test images in 2 classes, 2 more to choose by"
  cp shards/train-*.tar shards/classes.txt divided
  run 0 --data divided --split 0.25 $small --save-weights divided.safetensors
  cmp <(tensors first.safetensors) <(tensors divided.safetensors) || fail "another split than that of the folder"
  head -c 20000 shards/train-1.tar >divided/train-1.tar
  run 1 --data divided --split 0.25 $small && complains "divided/train-1.tar: member"
}

damaged_images_are_counted() {
  mkdir -p damaged && cp -r photos damaged/train && cp -r photos damaged/test
  : >damaged/train/ant/12.pgm && head -c 100 photos/bee/11.pgm >damaged/train/bee/11.pgm && echo x >damaged/test/ant/20.pgm
  run 1 --data damaged $small && complains "damaged/train/ant/12.pgm"
  run 1 --data damaged $small --max-damaged 1 && complains "more than 1 damaged samples; the last is sample"
  run 0 --data damaged $small --max-damaged 2 --save-weights two.safetensors --report report.json
  says "damaged: 2 of 32 training images so far, each replaced by the next sound one; the first: [image] damaged/train/ant/12.pgm: "
  says "damaged: 1 of 32 test images so far"
  [ "$(grep -c '^damaged: ' out)" = 2 ] || fail "told more than once"
  grep -q '"damaged_images": 3' report.json || fail "not in the report"
  grep -q 'damaged/train/bee/11.pgm' err || fail "the others are not named"
  # The next sound image stands for each, whoever met it first.
  cp -r damaged mended
  cp photos/ant/13.pgm mended/train/ant/12.pgm && cp photos/bee/12.pgm mended/train/bee/11.pgm && cp photos/ant/21.pgm mended/test/ant/20.pgm
  run 0 --data mended $small --save-weights mended.safetensors && quiet "damaged:"
  cmp <(tensors two.safetensors) <(tensors mended.safetensors) || fail "other images stand in"
  # Decoded as it trains, and stopped.
  local photographs="--data damaged --model resnet20 --image-size 16 --epochs 2 --batch 16 --max-damaged 5"
  run 0 $photographs --save-weights whole.safetensors --workers 2
  says "damaged: "
  run 0 $photographs --checkpoints stopped --max-steps 1
  run 0 --checkpoints stopped --resume --max-damaged 2 --save-weights resumed.safetensors
  cmp whole.safetensors resumed.safetensors || fail "other weights after a resume"
}

# The same pictures with others to choose by, for the stories below.
three_parts() {
  [ -d three ] && return
  local part class i
  for part in train val test; do mkdir -p three/$part/{ant,bee}; done
  for class in ant bee; do
    cp photos/$class/*.pgm three/train/$class
    for i in 30 31 32 33 34; do picture "${class:0:2} $i" >three/val/$class/$i.pgm && picture "${class:0:1} x $i" >three/test/$class/$i.pgm; done
  done
}

val_chooses_and_test_tells() {
  three_parts
  local words="--data three --epochs 4 --batch 8 --seed 2"
  run 0 $words --checkpoints chosen --report chosen.json
  says "three (image folder): 32 training and 10 test images in 2 classes, 10 more to choose by"
  [ "$(grep -cE '^epoch +[1-4]/4 .* val +[0-9.]+ %' out)" = 4 ] || fail "epochs do not say val"
  says "best val"
  says "test accuracy of the best weights: "
  grep -q '"judged_by": "val"' chosen.json || fail "the report does not say who judged"
  local told best
  told=$(value chosen.json accuracy) best=$(value chosen.json best_accuracy)
  run 0 --evaluate --data three --load-weights chosen/best.safetensors --report evaluated.json
  [ "$(value evaluated.json accuracy)" = "$told" ] || fail "test accuracy of the best weights: $told, then $(value evaluated.json accuracy)"
  mkdir -p only && ln -sfn "$PWD/three/train" only/train && ln -sfn "$PWD/three/val" only/val
  run 0 --evaluate --data only --load-weights chosen/best.safetensors --report of_val.json
  [ "$(value of_val.json accuracy)" = "$best" ] || fail "the best weights have $(value of_val.json accuracy) on val, not $best"
  # What is trained does not depend on who judges, and a run that is gone on with ends with the same figures.
  run 0 $words --checkpoints parts --max-steps 6
  run 0 --checkpoints parts --resume --max-steps 13
  run 0 --checkpoints parts --resume --report parts.json
  says "test accuracy of the best weights: "
  [ "$(value parts.json accuracy) $(value parts.json best_accuracy)" = "$told $best" ] || fail "other figures after a resume"
  cmp <(tensors chosen/best.safetensors) <(tensors parts/best.safetensors) || fail "other best weights after a resume"
  # Without its best weights it says so, and goes on.
  cp -r parts lost && rm lost/best.safetensors
  run 0 --checkpoints lost --resume --epochs 5 --report lost.json
  complains "lost/best.safetensors does not hold the best weights, of step"
  # Two processes judge and test by all images, each by its part.
  run 0 $words --processes 2 --checkpoints both-ranks --report ranks.json
  says "test accuracy of the best weights: "
  run 0 --evaluate --data three --load-weights both-ranks/best.safetensors --report evaluated.json
  [ "$(value evaluated.json accuracy)" = "$(value ranks.json accuracy)" ] || fail "two processes tell another test accuracy"
}

a_share_of_training_chooses() {
  local words="--data own --epochs 2 --batch 8"
  mkdir -p own/val/{ant,bee} && cp -r photos own/train && cp photos/ant/15.pgm own/val/ant && cp photos/bee/15.pgm own/val/bee
  run 0 $words --val-share 0.25 --checkpoints share --report share.json
  says "own (image folder): 24 training and 2 test images in 2 classes, 8 more to choose by"
  grep -q '"judged_by": "val"' share.json || fail "the report does not say who judged"
  run 0 --checkpoints share --resume --epochs 3
  says "24 training and 2 test images in 2 classes, 8 more to choose by"
  three_parts
  mkdir -p single/{train,test}/{ant,bee}
  local class
  for class in ant bee; do cp photos/$class/15.pgm single/train/$class && cp photos/$class/15.pgm single/test/$class; done
  run 1 --data single --val-share 0.1 && complains "--val-share 0.1: of 2 images in 2 classes it leaves none to choose by"
  run 1 --data three --val-share 0.25 && complains "--val-share: --data three has images to choose by, in val, beside test"
}

# Sizes of images that grow, and how they are cut out and resampled, in a run that is stopped in each part of it.
images_grow_from_epoch_to_epoch() {
  three_parts
  local words="--data three --model resnet20 --image-size 16 --epochs 4 --batch 8 --progressive 8:1,12:3"
  words+=" --crop-scale 0.35,1 --crop-ratio 0.8,1.25 --interpolation bicubic"
  run 0 $words --save-weights grown.safetensors --workers 1
  says ", of 8 pixels in epochs 1 to 1, of 12 pixels in epochs 2 to 3, parts of 0.35,1 of a picture, width / height of 0.8,1.25, bicubic"
  says "from here on images have 12 pixels" && says "from here on images have 16 pixels"
  run 0 $words --max-steps 9 --eager --workers 0 && says "from here on images have 12 pixels"
  grep -aq '"interpolation":"bicubic"' grown.safetensors || fail "the weights do not keep how pictures are resampled"
  run 0 $words --checkpoints grown --max-steps 3
  run 0 --checkpoints grown --resume --max-steps 4 && quiet "from here on"  # the last step of the first epoch
  run 0 --checkpoints grown --resume --max-steps 11 --workers 2
  run 0 --checkpoints grown --resume --save-weights resumed.safetensors && says "from here on images have 16 pixels"
  cmp grown.safetensors resumed.safetensors || fail "other weights after a resume"
  local option
  for option in "--crop-scale 0.9,1" "--crop-ratio 1,1" "--interpolation bilinear" "--progressive none"; do
    run 0 $words $option --max-steps 6 --save-weights other.safetensors
    run 0 $words --max-steps 6 --save-weights same.safetensors
    ! cmp -s <(tensors same.safetensors) <(tensors other.safetensors) || fail "$option changes nothing"
  done
  run 2 --data three --interpolation bicubic && complains "--interpolation needs --image-size"
}

weights_of_classes_come_from_a_file() {
  printf 'bee,2\nant,0.5\n' >weights.csv
  local words="--data photos --split 0.25 --epochs 1 --batch 8 --seed 3"
  run 0 $words --class-weights weights.csv --save-weights by_file.safetensors --checkpoints weighed
  run 0 $words --class-weights 0.5,2 --save-weights by_number.safetensors
  cmp <(tensors by_file.safetensors) <(tensors by_number.safetensors) || fail "other weights than by numbers"
  grep -qF '"class-weights": "0.5,2"' weighed/recipe.json || fail "the recipe names a file that may be gone: $(cat weighed/recipe.json)"
  run 0 --checkpoints weighed --resume --epochs 2 --class-weights weights.csv
  echo 'wasp,1' >>weights.csv
  run 1 $words --class-weights weights.csv && complains "--class-weights weights.csv: the data has no class 'wasp'"
  run 2 $words --class-weights nowhere.csv && complains "or the name of a file but got 'nowhere.csv'"
}

for test in val_chooses_and_test_tells a_share_of_training_chooses images_grow_from_epoch_to_epoch weights_of_classes_come_from_a_file a_folder_is_split_by_its_seed shards_train_as_their_folder_does damaged_images_are_counted; do
  rm -f out err
  $test
  echo "$test: passed"
done
