#!/usr/bin/env bash
# What sinter_pack does with folders and files: it packs, refuses, replaces and stops as its help says, and the trainer takes what it
# made. Usage: sinter_pack_test.sh <sinter_pack> <train_resnet> <folder of test images> <folder>
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
pack=$1 trainer=$2 images=$3 work=$4
begin_in "$work"

mkdir -p photos/train/{ant,bee} photos/val/bee
for i in 1 2 3 4 5 6; do cp "$images/rgb.jpg" "photos/train/ant/$i.jpg"; cp "$images/gray.pgm" "photos/train/bee/$i.pgm"; done
cp "$images/rgb.jpg" photos/val/bee/1.JPG

packs_and_resizes() {
  run 0 "$pack" photos/train asis && says "12 images (40x24) in 2 classes"
  [ "$(cat asis/classes.txt)" = "$(printf 'ant\nbee')" ] || fail "classes"
  [ "$(head -n 1 asis/property)" = 2,24,40 ] || fail "property"
  [ "$(wc -l < asis/train.idx)" = 12 ] || fail "lines of the index"
  run 0 "$pack" photos/train small --size 16x8 --threads 2 --quality 80 && says "12 images (16x8) in 2 classes"
  [ "$(head -n 1 small/property)" = 2,8,16 ] || fail "property of resized images"
  run 0 "$pack" photos/train square --size 16 && says "(16x16)"
  local again
  run 0 "$pack" photos/train again --size 16 --threads 1
  for again in train.rec train.idx property classes.txt; do cmp "square/$again" "again/$again" || fail "$again depends on the threads"; done
  run 0 "$pack" photos/train mixed --size 16 --shuffle 7
  [ "$(wc -c < mixed/train.rec)" = "$(wc -c < square/train.rec)" ] && ! cmp -s mixed/train.rec square/train.rec || fail "not shuffled"
}

says_what_it_leaves_out() {
  mkdir -p others/ant
  cp "$images/rgb.jpg" others/ant/a.jpg && cp "$images/gray.jpg" others/ant/b.jpg && echo >others/ant/c.gif
  run 0 "$pack" others other && says "1 of 3 files is left out: 1 .gif" && says "2 images"
}

refuses() {
  run 1 "$pack" photos/train small --size 16 && complains "small/train.rec is there already; --force replaces it"
  run 0 "$pack" photos/train small --size 16 --force
  cp -r small both && cp -r photos/train more && mkdir more/aardvark && cp "$images/rgb.jpg" more/aardvark/a.jpg
  printf '\xef\xbb\xbfant\r\nbee\r\n' >both/classes.txt  # as some editors write it
  run 0 "$pack" photos/val both --size 16 --name val
  run 0 "$pack" photos/train both --size 16 --force  # the same classes
  run 1 "$pack" more both --size 16 --force && complains "both/val.rec has labels of other classes than those of more; remove it"
  rm both/val.rec
  run 0 "$pack" more both --size 16 --force
  run 1 "$pack" photos/val nowhere --name val && complains "pack those first"
  run 1 "$pack" missing x && complains "it does not exist"
  [ ! -e nowhere ] && [ ! -e x ] || fail "a refused run made a folder"
  run 2 "$pack" photos/train
  run 2 "$pack" photos/train x --size 0
  run 2 "$pack" photos/train x --size 8x
  run 2 "$pack" photos/train x --quality 101
  run 2 "$pack" photos/train x --name ../y
  run 0 "$pack" --help && says "--shuffle"
  mkdir -p bad/ant
  head -c 300 "$images/rgb.jpg" >bad/ant/a.jpg
  run 1 "$pack" bad broken && complains "bad/ant/a.jpg"
  [ ! -e broken ] || fail "a failed run left $(find broken)"
  mkdir kept
  run 1 "$pack" bad kept/made/here && complains "bad/ant/a.jpg"
  [ -d kept ] && [ ! -e kept/made ] || fail "not what was there before: $(find kept)"
}

leaves_nothing_when_stopped() {
  mkdir -p many/ant
  for i in $(seq 3000); do ln -s "$images/rgb.jpg" "many/ant/$i.jpg"; done
  "$pack" many stopped --threads 1 --size 600 >out 2>err &
  local id=$! code=0
  for _ in $(seq 200); do [ -n "$(ls -A stopped 2>/dev/null)" ] && break; sleep 0.02; done
  kill -TERM $id
  wait $id || code=$?
  [ $code = 143 ] || fail "exit code $code after SIGTERM"
  [ ! -e stopped ] || fail "left $(find stopped)"
  says "nothing was written"
}

feeds_the_trainer() {
  run 1 "$trainer" --data small --epochs 1 && complains "no images to test with"
  run 0 "$pack" photos/val small --name val --size 16 && says "1 image ("
  run 0 "$trainer" --data small --epochs 1 --batch 4 --threads 1 && says "(records): 12 training and 1 test image in 2 classes"
}

packs_and_resizes
says_what_it_leaves_out
refuses
leaves_nothing_when_stopped
feeds_the_trainer
echo "all well"
