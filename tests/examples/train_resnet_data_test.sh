#!/usr/bin/env bash
# What train_resnet does with data as people have it: folders without test images, tar shards, and files that are damaged.
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
  local photographs="--data damaged --model resnet18 --image-size 16 --epochs 2 --batch 16 --max-damaged 5"
  run 0 $photographs --save-weights whole.safetensors --workers 2
  says "damaged: "
  run 0 $photographs --checkpoints stopped --max-steps 1
  run 0 --checkpoints stopped --resume --max-damaged 2 --save-weights resumed.safetensors
  cmp whole.safetensors resumed.safetensors || fail "other weights after a resume"
}

for test in a_folder_is_split_by_its_seed shards_train_as_their_folder_does damaged_images_are_counted; do
  rm -f out err
  $test
  echo "$test: passed"
done
