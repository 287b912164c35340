#!/usr/bin/env bash
# Names and files as other people make them: escape codes, line feeds and bytes that are no UTF-8 in names, files of other kinds
# among images, records without their property, JSON that is nested without end. Nothing of it drives a terminal, is lost without a
# word, or ends hours of work at their end. Usage: odd_files_test.sh <train_resnet> <train_insightface> <sinter_pack> <folder>
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
resnet=$1 faces=$2 pack=$3 work=$4
begin_in "$work"

# fill FOLDER: four images each of two classes, to train and to test.
fill() {
  local part class i
  for part in train test; do
    for class in ant bee; do
      mkdir -p "$1/$part/$class"
      for i in 1 2 3 4; do picture "$part $class $i" >"$1/$part/$class/$i.pgm"; done
    done
  done
}
small="--epochs 1 --batch 4 --threads 1"
escape=$(printf '\033[2J\033]0;title\a')
latin=$(printf 'caf\351')  # ISO 8859-1: no UTF-8

names_drive_no_terminal() {
  run 1 "$resnet" --data "$escape" --threads 1 && complains '--data \x1b[2J\x1b]0;title\x07: there is no such folder'
  fill "data$escape"
  run 0 "$resnet" --data "data$escape" $small && says 'data\x1b[2J'
  printf 'P5 16 16 255\nshort' >"data$escape/train/ant/$escape.pgm"
  run 1 "$resnet" --data "data$escape" $small
  run 1 "$faces" --data "$escape.rec" --threads 1
  run 1 "$pack" "$escape" packed
}

resuming_finds_data_of_any_name() {
  fill "$latin"
  run 0 "$resnet" --data "$latin" $small --max-steps 1 --checkpoints "run-$latin"
  run 0 "$resnet" --checkpoints "run-$latin" --resume --threads 1
  says 'caf\xe9 (image folder): 8 training and 8 test images'
  grep -rqF 'caf\\xe9' "run-$latin" || fail "no name in what the run left"
}

what_is_left_out_is_said() {
  fill mixed
  local part class i
  for part in train test; do
    for class in ant bee; do
      mkdir "mixed/$part/$class/more"
      picture "$part $class more" >"mixed/$part/$class/more/5.pgm"
      for i in 1 2; do echo >"mixed/$part/$class/$i.bmp"; done
    done
  done
  run 0 "$resnet" --data mixed $small && says "10 training and 10 test images"
  complains "mixed/train: 4 of 14 files are left out: 4 .bmp"
  run 0 "$pack" mixed/train packed && says "4 of 14 files are left out: 4 .bmp" && says "10 images"
}

records_without_property_say_what_to_write() {
  run 0 "$pack" mixed/train bare && mv bare/property kept
  run 1 "$faces" --data bare --threads 1
  complains "bare/property: there is no such file; it says how many classes (identities) bare/train.rec has"
  complains 'go up to 1. If these are all, make the file with the one line "2,16,16"'
  echo 2,16,16 >bare/property
  run 0 "$faces" --data bare $small_backbone --dims 8 --image-size 16 --batch 4 --max-steps 1 --threads 1 --save-weights w.safetensors
  rm bare/train.idx
  run 1 "$faces" --data bare --threads 1 && complains "bare/train.idx: there is no such file; it says where the records of bare/train.rec begin"
  mkdir -p "lines/$(printf 'a\nb')" && picture x >"lines/$(printf 'a\nb')/1.pgm"
  run 1 "$pack" lines packed-lines && complains 'expected class names of one line but got "a\nb"'
}

embeddings_take_any_name() {
  mkdir -p any
  local feed
  feed=$(printf 'b\nc')
  picture a >any/a.pgm && picture b >"any/$feed.pgm" && picture c >"any/$latin.pgm" && picture d >'any/d,\.pgm' && echo >any/notes.txt
  local use="--load-weights w.safetensors --image-size 16 --dims 8 --threads 1"
  run 0 "$faces" --embed any --output any.csv $use
  complains "--embed any: 1 of 5 files is left out: 1 .txt"
  [ "$(cut -d, -f1 any.csv | head -n 3 | tr '\n' ' ')" = 'a.pgm b\nc.pgm caf\xe9.pgm ' ] || fail "names: $(cut -c1-40 any.csv)"
  grep -qF '"d,\\.pgm",' any.csv || fail "a comma"
  [ "$(wc -l <any.csv)" = 4 ] || fail "lines"
  run 0 "$faces" --embed any --output any.safetensors $use
  head -c 200 any.safetensors | grep -qaF '"paths":"a.pgm\nb\\nc.pgm\ncaf\\xe9.pgm\nd,\\\\.pgm\n"' || fail "$(head -c 200 any.safetensors | tail -c 190)"
}

files_of_the_other_program_are_told_apart() {
  fill classes
  run 0 "$resnet" --data classes $small --max-steps 1 --checkpoints of-classes --save-weights of-classes.safetensors
  run 0 "$faces" --synthetic 4 $small_backbone --dims 8 --image-size 16 --batch 4 --max-steps 1 --threads 1 --checkpoints of-faces --save-weights of-faces.safetensors
  run 1 "$faces" --checkpoints of-classes --resume --threads 1
  complains "of-classes/checkpoint-00000001 is a checkpoint of train_resnet, which goes on with it"
  run 1 "$resnet" --checkpoints of-faces --resume --threads 1
  complains "of-faces/checkpoint-00000001 is a checkpoint of train_insightface, which goes on with it"
  run 1 "$faces" --embed classes --output no.csv --load-weights of-classes.safetensors --threads 1
  complains "--load-weights of-classes.safetensors: these are weights of the model resnet20, which is no backbone for faces"
  LC_ALL=C sed 's/model_metadata_version/xodel_metadata_version/' of-faces.safetensors >bare-faces.safetensors
  local how
  for how in --evaluate "--epochs 1" "--epochs 1 --new-head"; do
    run 1 "$resnet" --data classes $how --load-weights of-faces.safetensors --threads 1
    [ "$(cat err)" = "error: --load-weights of-faces.safetensors: these are weights of the model iresnet18 for faces, which train_insightface takes" ] || fail "other words"
    run 1 "$resnet" --data classes $how --load-weights bare-faces.safetensors --threads 1
    complains "bare-faces.safetensors: these are weights of a backbone for faces, which train_insightface takes"
  done
}

json_without_end_is_refused() {
  run 0 "$resnet" --data mixed $small --max-steps 1 --checkpoints deep
  local nested
  nested=$(printf '[%.0s' $(seq 80000))$(printf ']%.0s' $(seq 80000))
  printf '{"starts":%s}' "$nested" >"$(find deep -name run.json)"
  run 0 "$resnet" --checkpoints deep --resume --threads 1 && complains "nested deeper than 32 levels"
  printf '{"step":9,"time":1,"a":%s}\n' "$nested" >>"$(find deep -name scalars.jsonl)"
  run 1 "$resnet" --checkpoints deep --resume --epochs 2 --threads 1 && complains "expected a JSON object"
  printf '{"lr":%s}' "$nested" >deep.json
  run 2 "$resnet" --recipe deep.json && complains "nested deeper than 32 levels"
}

for test in names_drive_no_terminal resuming_finds_data_of_any_name what_is_left_out_is_said records_without_property_say_what_to_write \
  embeddings_take_any_name files_of_the_other_program_are_told_apart json_without_end_is_refused; do
  $test
  echo "ok $test"
done
