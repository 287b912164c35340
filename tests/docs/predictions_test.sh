#!/usr/bin/env bash
# The script and the program of docs/predictions.md, as they stand there, on four folders of mixed pictures.
# Usage: predictions_test.sh <page> <folder of train_resnet> <mixed_pictures> <predict> <folder>
#        predictions_test.sh --onnx-runtime <page> <python> <folder>   then compares with ONNX Runtime; 77: it is not there
set -euo pipefail

# block PAGE LANGUAGE WORDS: the page's block of that language that has those words.
block() {
  awk -v fence="\`\`\`$2" -v words="$3" '
    $0 == fence { inside = 1; text = ""; next }
    inside && $0 == "```" { inside = 0; if (index(text, words)) printf "%s", text; next }
    inside { text = text $0 "\n" }' "$1"
}

if [ "$1" = --onnx-runtime ]; then
  python=$3
  cd "$4"
  "$python" -c 'import onnxruntime, numpy, PIL' 2>/dev/null || { echo "skipped: 1 check needs onnxruntime, numpy and Pillow"; exit 77; }
  block "$2" python onnxruntime >compare.py
  [ -s compare.py ] || { echo "FAILED: the page has no such block"; exit 1; }
  "$python" compare.py | tee compared
  grep -qx '80 of 80 classes agree' compared || { echo "FAILED: ONNX Runtime gives other classes"; exit 1; }
  exit 0
fi

page=$1 programs=$2 mixed_pictures=$3 predict=$4 work=$5
rm -rf "$work"
mkdir -p "$work"
cd "$work"
export PATH=$programs:$PATH CUDA_VISIBLE_DEVICES=
"$mixed_pictures" shapes
# Somebody's weights, of three classes.
"$mixed_pictures" others
rm -r "$(find others -mindepth 1 -maxdepth 1 -type d | sort | head -n 1)"
train_resnet --data others --split 0.2 --image-size 32 --epochs 20 --batch 16 --no-flip --seed 3 --save-weights pretrained.pth
block "$page" sh 'train_resnet --data shapes' >script.sh
grep -q -- '--predict' script.sh || { echo "FAILED: the page has no such script"; exit 1; }
bash -euo pipefail script.sh | tee told
grep -q '^ *finetune ' told || { echo "FAILED: it did not begin with the weights"; exit 1; }
[ "$(grep -c . predictions.csv)" = 81 ] || { echo "FAILED: not a line for each picture"; exit 1; }
[ "$(head -n 1 predictions.csv)" = "path,class,probability,class_2,probability_2,error" ] || { echo "FAILED: another head"; exit 1; }
[ -s model.onnx ] && [ -s features.safetensors ] || { echo "FAILED: files are missing"; exit 1; }
right=$(sed 1d predictions.csv | awk -F'[/,]' '$2 == $4 { ++n } END { print n + 0 }')
echo "$right of 80 are right"
[ "$right" -ge 60 ] || { echo "FAILED: the network has learnt little"; exit 1; }
"$predict" run/best.safetensors shapes/disc/picture0.jpg shapes/lying/missing.png >told
cat told
grep -q '^shapes/disc/picture0.jpg: [a-z]* [0-9.]* %' told && grep -q '^shapes/lying/missing.png: .*missing.png' told ||
  { echo "FAILED: the program tells something else"; exit 1; }
