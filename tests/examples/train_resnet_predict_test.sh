#!/usr/bin/env bash
# Predictions by a file of weights alone: lines of CSV and JSON in the order of the pictures, wrong pictures that keep their lines,
# features of layers, and what is refused. Usage: train_resnet_predict_test.sh <program> <folder of pictures> <folder>
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
program=$1 pictures=$2 work=$3
command=("$program" --threads 1 --workers 0)
begin_in "$work"

# Three classes of grey images, which a network tells apart after some epochs.
make_data() {
  local part class image
  local -A look=([a]='!!!!' [b]='PPPP' [c]='~~~~')
  for part in train test; do
    for class in a b 'c,"d"'; do
      mkdir -p "$1/$part/$class"
      for image in 1 2 3 4 5 6; do
        [ $part = train ] || [ $image -lt 4 ] || continue
        picture "${look[${class:0:1}]}$image$part" 8 >"$1/$part/$class/$image.pgm"
      done
    done
  done
}
make_data data
run 0 --data data --epochs 10 --batch 6 --save-weights w.safetensors --report report.json
cp out trained
predict=(--predict data/test --load-weights w.safetensors)

a_line_for_each_picture() {
  run 0 "${predict[@]}"
  [ ! -s err ] || fail "complaints"
  [ "$(head -n 1 out)" = "path,class,probability,error" ] || fail "another head"
  (cd data/test && find . -name '*.pgm' | sed 's,^\./,data/test/,' | LC_ALL=C sort) >names
  [ "$(grep -c . out)" = 10 ] || fail "not nine pictures"
  # The third class is quoted, as its name has a comma and quotes in it: in its path, and where it is what is seen.
  sed 1d out | sed -E 's/^"?(data[^.]*\.pgm)"?,.*/\1/; s/""/"/g' >told
  cmp names told || fail "another order"
  grep -qE '^"data/test/c,""d""/1.pgm",' out || fail "no quotes"
  run 0 "${predict[@]}" --output p.csv
  says "9 pictures, 0 of which could not be read; predictions in p.csv"
  run 0 "${predict[@]}" && cmp out p.csv || fail "the file differs from standard output"
  ! ls -A | grep -q 'p\.csv\.' || fail "something is left beside the file"
}

# As many are right as the trainer has found in its test of the same pictures.
accuracy_is_the_trainers() {
  run 0 --evaluate --load-weights w.safetensors --data data
  local tested right
  tested=$(sed -n 's/^test accuracy: //p' out)
  run 0 "${predict[@]}"
  right=$(sed 1d out | tr -d '"' | awk '{ split($0, p, "/"); rest = $0; sub(/.*\.pgm,/, "", rest); if (index(rest, p[3] ",") == 1) ++n } END { printf "%.1f %%", 100 * n / NR }')
  [ "${tested%%.*}" -ge 50 ] || fail "the network has learnt nothing: $tested"
  [ "$right" = "$tested" ] || fail "$right of the predictions are right, the trainer says $tested"
}

lines_of_json() {
  run 0 "${predict[@]}" --output p.jsonl --top-k 2
  [ "$(grep -c '^{"path":"data/test/.*","class":".*","probability":.*,"top":\[{.*},{.*}\]}$' p.jsonl)" = 9 ] || fail "other lines: $(head -n 1 p.jsonl)"
  grep -qF '{"path":"data/test/c,\"d\"/1.pgm"' p.jsonl || fail "no escapes"
  run 0 "${predict[@]}" --top-k 99
  [ "$(head -n 1 out)" = "path,class,probability,class_2,probability_2,class_3,probability_3,error" ] || fail "more than there are"
}

wrong_pictures_keep_their_lines() {
  mkdir -p mixed/in/side
  cp "$pictures"/rgb.jpg "$pictures"/gray.jpg "$pictures"/rgb.ppm mixed
  head -c 200 "$pictures/rgb.jpg" >mixed/in/half.jpg
  echo nothing >mixed/in/side/no.png
  echo text >mixed/note.md
  : >mixed/empty.webp
  run 1 --predict mixed --load-weights w.safetensors
  complains "warning: --predict mixed: 1 of 7 files is left out: 1 .md"
  complains "error: 3 of 6 pictures could not be read; the first: "
  [ "$(grep -c '^mixed/.*,,,.*[a-z]' out)" = 3 ] || fail "not three errors"
  [ "$(grep -c '^mixed/.*,[0-9.e-]*,$' out)" = 3 ] || fail "not three predictions"
  run 1 --predict mixed --load-weights w.safetensors --output p.jsonl --max-damaged 2
  [ "$(grep -c '"error":"' p.jsonl)" = 3 ] && [ "$(grep -c . p.jsonl)" = 6 ] || fail "other lines"
  run 0 --predict mixed --load-weights w.safetensors --max-damaged 3
  complains "warning: 3 of 6 pictures could not be read"
  cp out one
  run 0 --predict mixed --load-weights w.safetensors --max-damaged 3 --workers 3 --batch 2
  cmp <(cut -d, -f1,2 one) <(cut -d, -f1,2 out) || fail "workers and batches have changed the classes"
}

pictures_by_list() {
  local name
  name=$(printf 'new\nline.jpg')
  cp "$pictures/rgb.jpg" "$name"
  printf '\xef\xbb\xbfmixed/rgb.ppm\r\n\nmissing.png\nmixed/rgb.jpg\nmixed/rgb.ppm\n' >list.txt
  run 1 --predict list.txt --load-weights w.safetensors
  [ "$(sed 1d out | cut -d, -f1 | tr '\n' ' ')" = "mixed/rgb.ppm missing.png mixed/rgb.jpg mixed/rgb.ppm " ] || fail "another order"
  cp out listed
  timeout 60 "${command[@]}" --predict - --load-weights w.safetensors <list.txt >out 2>err && fail "the missing one is not an error"
  cmp out listed || fail "standard input differs"
  run 0 --predict mixed/rgb.jpg --load-weights w.safetensors && [ "$(grep -c . out)" = 2 ] || fail "not one line"
  run 0 --predict "$name" --load-weights w.safetensors
  grep -qx '"new' out || fail "a name of two lines is not quoted"
  run 0 --predict "$name" --load-weights w.safetensors --output p.jsonl
  grep -qF '{"path":"new\nline.jpg",' p.jsonl || fail "it is not escaped in JSON"
  name=$(printf 'caf\351.jpg')
  if cp "$pictures/rgb.jpg" "$name" 2>/dev/null; then
    run 0 --predict "$name" --load-weights w.safetensors
    grep -q '^caf\\xe9.jpg,' out || fail "a byte that is no UTF-8"
  fi
  mkdir -p linked/in && cp "$pictures/rgb.jpg" linked && ln -s .. linked/in/up && ln -s ../../linked linked/in/again
  run 0 --predict linked --load-weights w.safetensors && [ "$(grep -c . out)" = 2 ] || fail "links back to a folder above multiply pictures"
  : >empty.lst
  run 1 --predict empty.lst --load-weights w.safetensors && complains "error: --predict empty.lst: the list names no picture"
  run 1 --predict gone --load-weights w.safetensors && complains "error: --predict gone: there is no such file or folder"
  mkdir -p bare
  run 1 --predict bare --load-weights w.safetensors && complains "error: --predict bare has no images"
}

views_of_each_picture() {
  run 0 --data data --epochs 1 --batch 6 --lr 0.001 --image-size 12 --save-weights crops.safetensors  # of which nothing is sure
  local crops=(--predict mixed/rgb.jpg --load-weights crops.safetensors) kind
  run 0 "${crops[@]}" && cp out plain
  for kind in --test-flip "--test-crops 5" "--test-crops 5 --test-flip"; do
    run 0 "${crops[@]}" $kind
    [ "$(grep -c . out)" = 2 ] && ! cmp -s out plain || fail "$kind changes nothing"
  done
  run 1 "${predict[@]}" --test-crops 5 && complains "there is one crop of a picture"
}

features_of_layers() {
  run 0 "${predict[@]}" --features layer3 --output f.safetensors
  says "9 pictures, 0 of which could not be read; 64 features of each in f.safetensors"
  head -c 700 f.safetensors | grep -qaF '"features":{"dtype":"F32","shape":[9,64]' || fail "other features"
  head -c 700 f.safetensors | grep -qaF '"paths":"data/test/a/1.pgm\ndata/test/a/2.pgm\n' || fail "other paths"
  run 0 "${predict[@]}" --features avgpool --output g.safetensors
  head -c 200 f.safetensors | grep -qaF '"layer":"layer3"' || fail "another layer"
  head -c 200 g.safetensors | grep -qaF '"layer":"avgpool"' || fail "not the layer that was asked for"
  cmp <(tensors f.safetensors) <(tensors g.safetensors) || fail "avgpool is not what the last stage gives"
  run 1 --predict mixed --load-weights w.safetensors --features fc --output f.safetensors
  head -c 900 f.safetensors | grep -qaF '"shape":[3,3]' || fail "wrong pictures have rows"
  head -c 900 f.safetensors | grep -qaF '"errors":"[' || fail "wrong pictures are not named"
  run 1 "${predict[@]}" --features layer9 --output none.safetensors
  complains "expected a layer among conv1, bn1, layer1.0.conv1"
  complains "layer3, fc but got 'layer9'"
  [ ! -e none.safetensors ] || fail "a file is left"
}

weights_without_metadata() {
  LC_ALL=C sed 's/model_metadata_version/xodel_metadata_version/' crops.safetensors >bare.safetensors
  local bare=(--predict mixed/rgb.jpg --load-weights bare.safetensors)
  run 1 "${bare[@]}"
  complains "error: --load-weights bare.safetensors does not say what it is of: --image-size"
  run 0 "${bare[@]}" --image-size 12
  complains "does not say how its images are normalised; as ImageNet's are, unless --normalization says otherwise"
  run 0 --epochs 1 --max-steps 1 --save-weights digits.safetensors  # grey images have no usual normalisation
  LC_ALL=C sed 's/model_metadata_version/xodel_metadata_version/' digits.safetensors >grey.safetensors
  local grey=(--predict "$pictures/gray.pgm" --load-weights grey.safetensors --image-size 8)
  run 1 "${grey[@]}"
  complains "error: --load-weights grey.safetensors does not say how its images are normalised, which are grey: --normalization <mean>/<deviation>"
  run 1 "${grey[@]}" --normalization imagenet
  complains "error: --normalization imagenet is of 3 channels, --load-weights grey.safetensors of images with 1"
  run 0 "${grey[@]}" --normalization 0.3/0.4
  run 2 "${bare[@]}" --image-size 12 --normalization data && complains "--normalization data is that of training images: there are none with --predict"
  run 1 "${predict[@]}" --normalization 0.5/0.25 && complains "--load-weights w.safetensors says how its images are normalised; leave --normalization out"
  local own
  own=$(head -c 2000 crops.safetensors | LC_ALL=C sed -nE 's,.*"mean":"\[([^]]*)\]".*"std":"\[([^]]*)\]".*,\1/\2,p')
  run 0 --predict mixed/rgb.jpg --load-weights crops.safetensors && cut -d, -f3 out >named
  run 0 "${bare[@]}" --image-size 12 --normalization 0.1/0.9 && ! cut -d, -f3 out | cmp -s - named || fail "no matter how it is normalised"
  bare+=(--normalization "$own")
  run 0 "${bare[@]}" --image-size 12
  cut -d, -f3 out | cmp - named || fail "not what the file with metadata gives"
  [ ! -s err ] || fail "complaints"
  grep -qE '^mixed/rgb.jpg,[012],' out || fail "classes are not their numbers"
  printf '\xef\xbb\xbfant\r\nbee\r\ncat\r\n' >names.txt
  run 0 "${bare[@]}" --image-size 12 --class-names names.txt --model resnet20
  grep -qE '^mixed/rgb.jpg,(ant|bee|cat),' out || fail "classes without names"
  local export=(--load-weights bare.safetensors --export bare.onnx --normalization 0.5/0.25)
  run 1 "${export[@]}" && complains "does not say what it is of: --image-size <pixels of an input>, 224 mostly, and --class-names <file> do"
  run 0 "${export[@]}" --image-size 12 --class-names names.txt
  grep -qaF '["ant","bee","cat"]' bare.onnx || fail "names are not exported"
  grep -qaF '[0.25,0.25,0.25]' bare.onnx || fail "another normalisation is exported"
  run 2 --class-names names.txt --epochs 1 && complains "--class-names needs --predict, or --export of --load-weights"
  run 2 "${export[@]}" --evaluate --data data --class-names names.txt && complains "--class-names needs --predict, or --export of --load-weights"
  run 1 "${bare[@]}" --image-size 12 --model resnet32 && complains "these are weights of a resnet20, --model says resnet32"
  run 0 "${bare[@]}" --image-size 12 --class-names names.txt --top-k 3 && grep -qE '(^|,)ant,' out || fail "a byte order mark is part of a name"
  echo dog >>names.txt
  run 1 "${bare[@]}" --image-size 12 --class-names names.txt && complains "3 classes but got 4 names"
  run 1 "${bare[@]}" --image-size 12 --class-names gone.txt && complains "--class-names gone.txt cannot be read"
  run 1 "${predict[@]}" --class-names names.txt && complains "says how its classes are called; leave --class-names out"
  run 1 "${predict[@]}" --model resnet32 && complains "these are weights of a resnet20, --model says resnet32"
  run 1 "${predict[@]}" --image-size 64 && complains "these are weights for images of 8 pixels, --image-size says 64"
}

# As --evaluate does: by --key, or under a prefix of all names.
the_weights_that_are_asked_for() {
  local two=$pictures/../pytorch/two.pth kind
  run 0 --evaluate --load-weights w.safetensors --data data --save-weights w.pth
  edited w.safetensors 's/"([a-z0-9_.]+)":\{"dtype"/"encoder.\1":{"dtype"/g' >prefixed.safetensors
  run 0 "${predict[@]}" && cp out named
  run 0 --predict data/test --load-weights prefixed.safetensors && cmp out named || fail "not as without the prefix"
  run 0 --load-weights prefixed.safetensors --export prefixed.onnx && says "its weights are those whose names begin with 'encoder.'"
  for kind in "--predict data/test" "--predict data/test --features fc --output key.safetensors" "--export key.onnx"; do
    run 1 $kind --load-weights w.pth --key ema && complains "error: --key ema: "
    run 1 $kind --load-weights "$two" --key model
    complains "two.pth does not say what it is of, and is none of the models of --model"  # what is at that key
  done
}

# One file's inputs are the same with and without metadata, and those that the test of a run had.
pictures_are_cropped_as_asked() {
  local crop=(--image-size 12 --test-crop 0.6 --interpolation bicubic) own plain
  run 0 --data data --epochs 1 --batch 6 "${crop[@]}" --save-weights half.safetensors
  LC_ALL=C sed 's/model_metadata_version/xodel_metadata_version/' half.safetensors >bare.safetensors
  own=$(head -c 2000 half.safetensors | LC_ALL=C sed -nE 's,.*"mean":"\[([^]]*)\]".*"std":"\[([^]]*)\]".*,\1/\2,p')
  local told=(--load-weights half.safetensors) bare=(--load-weights bare.safetensors --normalization "$own" --image-size 12)
  run 0 --predict mixed/rgb.jpg "${told[@]}" && cut -d, -f3 out >named
  run 0 --predict mixed/rgb.jpg "${bare[@]}" "${crop[@]:2}"
  [ ! -s err ] || fail "complaints"
  cut -d, -f3 out | cmp - named || fail "not what the file with metadata gives"
  for plain in "--test-crop 0.6" "--interpolation bicubic" ""; do
    run 0 --predict mixed/rgb.jpg "${bare[@]}" $plain && ! cut -d, -f3 out | cmp -s - named || fail "'$plain' is all that counts"
  done
  run 0 "${bare[@]}" "${crop[@]:2}" --export half.onnx && grep -qaF bicubic half.onnx || fail "another resizing is exported"
  # Where the file says it, it may be said again.
  run 0 --predict mixed/rgb.jpg "${told[@]}" "${crop[@]}" && cut -d, -f3 out | cmp - named || fail "not the same"
  run 1 --predict mixed/rgb.jpg "${told[@]}" --test-crop 0.875 && complains "half.safetensors says how its pictures are cropped; leave --test-crop out"
  run 1 --export x.onnx "${told[@]}" --interpolation bilinear && complains "these are weights for bicubic resizing, --interpolation says bilinear"
  run 1 "${predict[@]}" --test-crop 0.5 && complains "w.safetensors says how its pictures are cropped; leave --test-crop out"
}

# PyTorch's files that Sinter writes say what they are of.
own_files_of_pytorch() {
  run 0 --evaluate --load-weights w.safetensors --data data --save-weights w.pth
  run 0 "${predict[@]}" && cp out named
  run 0 --predict data/test --load-weights w.pth
  cmp out named || fail "a .pth gives other predictions than a .safetensors"
  [ ! -s err ] || fail "complaints"
  run 1 --predict data/test --load-weights w.pth --image-size 64 && complains "these are weights for images of 8 pixels"
  run 0 --load-weights w.safetensors --export a.onnx
  run 0 --load-weights w.pth --export b.onnx
  cmp a.onnx b.onnx || fail "a .pth is exported as something else"
}

what_is_refused() {
  run 0 "${predict[@]}" --lr 0.5 --epochs 3 && complains "passed over, as nothing is trained: --epochs, --lr"
  run 2 --predict data && complains "--predict needs --load-weights <file>"
  run 2 "${predict[@]}" --data data && complains "--predict and --data cannot go together"
  run 2 "${predict[@]}" --evaluate && complains "--predict and --evaluate cannot go together"
  run 2 "${predict[@]}" --processes 2 && complains "--predict and --processes cannot go together"
  run 2 "${predict[@]}" --output p.txt && complains "expected a name that ends in .csv or .jsonl"
  run 2 "${predict[@]}" --features fc && complains "--features needs --output <file>.safetensors"
  run 2 "${predict[@]}" --features fc --output f.csv && complains "--features needs --output <file>.safetensors"
  run 2 "${predict[@]}" --features fc --output f.safetensors --top-k 2 && complains "--top-k is of classes"
  run 2 "${predict[@]}" --top-k 0 && complains "--top-k"
  run 2 "${predict[@]}" --test-crops 2 && complains "--test-crops"
  run 2 --top-k 2 && complains "--predict"
  run 1 "${predict[@]}" --output gone/p.csv && complains "--output gone/p.csv: there is no folder gone"
  run 1 --predict data --load-weights gone.safetensors && complains "gone.safetensors"
}

# What is stopped leaves no file, or whole lines; what cannot be written is an error.
ends_before_the_last_picture() {
  local i code=0
  for i in $(seq 40000); do echo mixed/rgb.jpg; done >many.lst
  command=(timeout -s INT 2 "$program" --threads 1 --workers 0)
  "${command[@]}" --predict many.lst --load-weights w.safetensors --output stopped.csv --batch 8 >out 2>err || code=$?
  if [ $code != 0 ]; then  # else it was quicker than that
    complains_like "stopped after [0-9]+ of 40000 pictures; nothing is written"
    [ ! -e stopped.csv ] || fail "a part is left"
    ! ls -A | grep -q stopped || fail "something is left: $(ls -A)"
  fi
  command=("$program" --threads 1 --workers 0)
  code=0
  "${command[@]}" --predict many.lst --load-weights w.safetensors --batch 8 2>err | head -n 2 >out || code=$?
  [ "$(grep -c . out)" = 2 ] || fail "no lines"
  if [ -e /dev/full ]; then
    code=0
    "${command[@]}" "${predict[@]}" >/dev/full 2>err || code=$?
    [ $code = 1 ] && complains "error: standard output: " || fail "a full disk is not told"
  fi
}

for test in a_line_for_each_picture accuracy_is_the_trainers lines_of_json wrong_pictures_keep_their_lines pictures_by_list \
  views_of_each_picture features_of_layers weights_without_metadata the_weights_that_are_asked_for pictures_are_cropped_as_asked own_files_of_pytorch what_is_refused ends_before_the_last_picture; do
  rm -f out err
  $test
  echo "$test: passed"
done
