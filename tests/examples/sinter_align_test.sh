#!/usr/bin/env bash
# What sinter_align does with photographs and points: it aligns, names and counts what it leaves out, refuses, replaces and checks as its
# help says. Usage: sinter_align_test.sh <sinter_align> <folder of test images> <folder>
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
align=$1 images=$2 work=$3
begin_in "$work"

mkdir -p photos/ann photos/bob
for i in 1 2 3; do cp "$images/rgb.jpg" photos/ann/$i.jpg; cp "$images/gray.pgm" photos/bob/$i.pgm; done
# Of 40x24 pixels: faces of all of it.
points=10,8,25,7,17,12,11,18,24,17
list() { for i in 1 2 3; do echo "ann/$i.jpg,$points"; echo "bob/$i.pgm,$points,0.9"; done; }
list >landmarks.csv

aligns() {
  run 0 "$align" photos landmarks.csv aligned && says "aligned: 6 faces of 112x112 pixels, aligned in "
  [ "$(cd aligned && find . -type f | sort | tr '\n' ' ')" = "./ann/1.jpg ./ann/2.jpg ./ann/3.jpg ./bob/1.jpg ./bob/2.jpg ./bob/3.jpg " ] || fail "other files"
  run 0 "$align" photos landmarks.csv one --threads 1 --quality 95
  diff -r aligned one || fail "the threads make a difference"
  run 0 "$align" photos landmarks.csv lossless --format png --size 224 && says "6 faces of 224x224 pixels"
  [ "$(head -c 24 lossless/ann/1.png | tail -c 8 | od -An -tx1 | tr -d ' ')" = 000000e0000000e0 ] || fail "no PNG of 224x224"
  run 0 "$align" photos landmarks.csv small --quality 20
  [ "$(wc -c <small/ann/1.jpg)" -lt "$(wc -c <aligned/ann/1.jpg)" ] || fail "the quality makes no difference"
}

checks() {
  run 0 "$align" photos landmarks.csv of128 --format png --size 128
  local at128=46.29,51.70,81.53,51.50,64.03,71.74,49.55,92.37,78.73,92.20 moved=56.29,51.70,91.53,51.50,74.03,71.74,59.55,92.37,88.73,92.20
  for i in 1 2 3; do echo "ann/$i.png,$at128"; echo "bob/$i.png,$at128"; done >exact.csv
  run 0 "$align" of128 exact.csv --check --size 128
  says "exact.csv: 6 faces of 128x128 pixels" && says "these faces are aligned"
  grep -qE "^  as they are +0.0. +0.0. +0.0. " out || fail "not at the template"
  sed "s/$at128/$moved/" exact.csv >moved.csv  # ten pixels to the right
  run 0 "$align" of128 moved.csv --check --size 128
  says "these faces are not aligned"
  grep -qE "^  as they are +10.00 +10.00 +10.00  ann/1.png" out || fail "not ten pixels away"
  grep -qE "^  at best, if turned, scaled, moved +0.0. " out || fail "a move would not do"
  run 1 "$align" of128 exact.csv --check && complains "expected 112x112 pixels (--size) but got 128x128"
  [ ! -e --check ] || fail "it wrote something"
}

leaves_out_what_is_named() {
  cp -r photos damaged && head -c 300 "$images/rgb.jpg" >damaged/ann/2.jpg
  run 1 "$align" damaged landmarks.csv none && complains "landmarks.csv, line 3: [jpeg] damaged/ann/2.jpg" && complains "--max-damaged puts up with some"
  { list; echo "ann/4.jpg,$points"; } >more.csv
  cp photos/ann/1.jpg damaged/ann/4.jpg
  sed -e 's/^bob\/1.*/bob\/1.pgm,25,7,10,8,17,12,24,17,11,18/' -e 's/^bob\/3.*/bob\/3.pgm,10,8,10,8,17,12,11,18,24,17/' more.csv >refused.csv
  run 1 "$align" damaged refused.csv some --max-damaged 2
  complains "left out: refused.csv, line 2: bob/1.pgm: left and right are mirrored"
  complains "left out: refused.csv, line 3: [jpeg] damaged/ann/2.jpg"
  complains "refused.csv, line 6: bob/3.pgm: two points are the same; more than --max-damaged 2"
  run 0 "$align" damaged refused.csv some --force --max-damaged 3
  says "some: 4 faces of 112x112 pixels (3 more are left out), aligned in "
  [ "$(find some -type f | wc -l)" = 4 ] || fail "other files: $(find some -type f)"
  rm damaged/ann/4.jpg
  run 1 "$align" damaged refused.csv fewer --max-damaged 3 && complains "damaged/ann/4.jpg"
}

refuses() {
  run 1 "$align" photos landmarks.csv aligned && complains "aligned/ann/1.jpg is there already; --force replaces it"
  run 0 "$align" photos landmarks.csv aligned --force
  run 1 "$align" photos landmarks.csv photos/. --force && complains "faces would take the place of the photographs"
  { list; echo "ann/1.png,$points"; } >twice.csv
  run 1 "$align" photos twice.csv twice && complains "twice.csv: lines 1 and 7 are both of twice/ann/1.jpg"
  echo "../x.jpg,$points" >outside.csv
  run 1 "$align" photos outside.csv outside && complains "outside.csv, line 1: expected a path inside the folder of the images"
  echo "ann/1.jpg,1,2" >short.csv
  run 1 "$align" photos short.csv short && complains "short.csv, line 1: expected path,x1,y1,...,x5,y5[,score] (or 68 points)"
  run 1 "$align" photos nowhere.csv x && complains "nowhere.csv"
  run 1 "$align" nowhere landmarks.csv x && complains "nowhere"
  run 2 "$align" photos landmarks.csv && complains "there is no folder for the faces"
  run 2 "$align" photos landmarks.csv x --check && complains "--check writes nothing"
  run 2 "$align" photos landmarks.csv x --size 120 && complains "expected a multiple of 112 or 128 but got 120"
  run 2 "$align" photos landmarks.csv x --format gif
  run 2 "$align" photos landmarks.csv x --qualty 3 && complains "did you mean --quality?"
  run 0 "$align" --version && says "sinter_align of Sinter "
  [ ! -e x ] || fail "a refused run left a folder"
  touch file
  run 1 "$align" photos landmarks.csv file/x && complains "file/x"
}

takes_any_name() {
  local latin comma escape
  latin=$(printf 'caf\351') comma='b,"c"' escape=$(printf '\033[2J')
  mkdir -p odd && for name in "$latin" "$comma" "$escape"; do cp "$images/gray.pgm" "odd/$name.pgm"; done
  { echo "path,x1,y1,x2,y2,x3,y3,x4,y4,x5,y5"; echo "caf\\xe9.pgm,$points"; echo "\"b,\"\"c\"\".pgm\",$points"; echo "\\x1b[2J.pgm,$points"; } >odd.csv
  run 0 "$align" odd odd.csv odd-faces && says "3 faces"
  for name in "$latin" "$comma" "$escape"; do [ -s "odd-faces/$name.jpg" ] || fail "no face $name: $(ls odd-faces)"; done
  run 1 "$align" odd odd.csv odd-faces
  ! LC_ALL=C grep -qP '[\x00-\x08\x0b-\x1f\x7f]' out err || fail "control characters in the output"
  rm "odd/$escape.pgm"
  run 1 "$align" odd odd.csv odd-faces --force && complains 'odd/\x1b[2J.pgm'
}

a_signal_stops() {
  local code=0 i
  for i in $(seq 4 3000); do echo "ann/$i.jpg,$points"; done >many.csv
  for i in $(seq 4 3000); do ln -f photos/ann/1.jpg photos/ann/$i.jpg; done
  "$align" photos many.csv many --threads 1 --size 1120 >out 2>err &
  local main=$!
  for i in $(seq 300); do [ -e many/ann/4.jpg ] && break; sleep 0.1; done
  kill -TERM $main
  wait $main || code=$?
  [ "$code" = 143 ] || fail "exit code $code after SIGTERM"
  says "stopped; the faces that were finished are in many"
  [ -z "$(find many -name '.*.part')" ] || fail "half a file"
}

for test in aligns checks leaves_out_what_is_named refuses takes_any_name a_signal_stops; do
  rm -f out err
  $test
  echo "$test: passed"
done
