#!/usr/bin/env bash
# train_resnet as a user runs it: a run that is stopped in the middle of epochs, twice, ends with the same weights as one that
# is not, bit for bit; the last line is the accuracy; mistakes are one clear line. Usage: train_resnet_test.sh <program> <folder>
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/digits.sh"
export SINTER_DETERMINISTIC=1  # on a GPU, the fastest plans of a convolution may sum in any order
program=$1 work=$2
rm -rf "$work"
mkdir -p "$work"
cd "$work"
export SINTER_CACHE_DIR=$PWD/plans  # others who measure at the same time must not change the plans, which bits depend on
few_digits few 352 96
run() { "$program" --data few --batch 8 --epochs 2 --seed 3 "$@" 2>/dev/null; }

run --save-weights whole.safetensors --report whole.json --export whole.onnx >whole.log
grep -q '^ONNX         whole.onnx$' whole.log
tail -n 1 whole.log | grep -Eq '^test accuracy: [0-9]+\.[0-9] %$' || { echo "the last line is no accuracy"; exit 1; }

grep -q '"complete": true' whole.json && grep -q '"steps": 88,' whole.json && grep -Eq '"accuracy": (0\.[0-9]+|1),' whole.json ||
  { echo "the report is wrong:"; cat whole.json; exit 1; }

run --checkpoints stopped --max-steps 17 | tail -n 1 | grep -x 'stopped; go on with --checkpoints stopped --resume' >/dev/null
run --checkpoints stopped --resume --max-steps 61 --workers 2 >resumed.log
grep -q 'resumed .* at step 17' resumed.log
run --checkpoints stopped --resume --workers 0 --save-weights resumed.safetensors >resumed.log
cmp whole.safetensors resumed.safetensors || { echo "the resumed run ended with other weights"; exit 1; }
diff <(tail -n 1 whole.log) <(tail -n 1 resumed.log)

# The last checkpoint is complete: evaluating it gives the same accuracy, without training.
run --checkpoints stopped --resume --evaluate >evaluated.log
diff <(tail -n 1 whole.log) <(tail -n 1 evaluated.log)

# Weights alone do too.
run --load-weights whole.safetensors --evaluate --export loaded.onnx >loaded.log
diff <(tail -n 1 whole.log) <(tail -n 1 loaded.log)
"$program" --data few --load-weights whole.safetensors --evaluate --lr 0.3 >passed.log 2>passed.err
grep -qx "passed over, as nothing is trained: --lr" passed.err || { echo "an option without use is not told"; cat passed.err; exit 1; }
# What is exported is the same, whether they were just trained or loaded. (What runs such a file: tests/nn/export.)
cmp whole.onnx loaded.onnx || { echo "the same weights were exported otherwise"; exit 1; }
"$program" --load-weights whole.safetensors --export alone.onnx >alone.log 2>&1  # no data, nothing trained
cmp whole.onnx alone.onnx || { echo "weights alone were exported otherwise"; exit 1; }
grep -qaF layer3.2.conv2.weight whole.onnx && grep -qaF '["0","1","2"' whole.onnx || { echo "names are missing in whole.onnx"; exit 1; }

# In mixed precision too, a run that is stopped goes on bit for bit, the scale of the loss included.
run --precision mixed-f16 --max-steps 9 --checkpoints mixed_whole | tail -n 1 | grep -x 'stopped; go on with --checkpoints mixed_whole --resume' >/dev/null
run --precision mixed-f16 --max-steps 4 --checkpoints mixed >/dev/null
run --precision mixed-f16 --max-steps 9 --checkpoints mixed --resume >resumed.log
grep -q 'resumed .* at step 4' resumed.log
for part in model optimizer scaler epoch_loss epoch_ranks; do
  cmp mixed_whole/checkpoint-00000001/$part.safetensors mixed/checkpoint-00000002/$part.safetensors ||
    { echo "the resumed run in mixed precision ended with another $part"; exit 1; }
done

# --profile shows where steps spend their time, by op and by part of the model, and --trace keeps each call.
echo "another file" >trace.json
run --max-steps 20 --profile 3 --trace trace.json --report-html job.html >profile.log
for line in '^3 steps, op by op$' '^op  .*of copy +TFLOP/s$' '^conv2d  .*%  *[0-9.]+$' '^total ' '^the 10 longest by part of the model$' \
  '^conv2d.* layer[123]\.[0-2]\.conv[12]$' '^[0-9]+ others ' '^trace written to trace.json$' "^the job's report written to job.html$" \
  '^a step as (a whole|one launch): [0-9]+ us; its calls one by one: [0-9]+ us$'; do
  grep -Eq "$line" profile.log || { echo "the profile lacks $line:"; cat profile.log; exit 1; }
done
# Every one of the 3 steps begins with the convolution of the stem, and nothing of the other 17 is there.
[ "$(grep -c '"name":"conv2d",.*"scope":"conv1"' trace.json)" = 3 ] || { echo "the trace is not of 3 steps"; exit 1; }
# The page of the job has the profile's calls; without --profile it has none.
grep -q '<section id="calls">' job.html || { echo "job.html lacks the calls"; exit 1; }
run --max-steps 2 --report-html short.html >out
grep -qx "the job's report written to short.html" out
grep -q '<section id="passes">' short.html && ! grep -q '<section id="calls">' short.html || { echo "short.html is another"; exit 1; }
run --max-steps 20 --eager --profile 3 >eager.log
grep -q '^conv2d ' eager.log && ! grep -q 'part of the model' eager.log || { echo "the eager profile is wrong"; exit 1; }
"$program" --data few --batch 8 --epochs 1 --max-steps 10 --profile 3 --trace none.json 2>untimed.err >/dev/null
grep -q 'did not reach: nothing was timed' untimed.err || { echo "nobody was told that nothing was timed"; exit 1; }
[ ! -e none.json ] || { echo "a trace of nothing was written"; exit 1; }

# Within a limit a step takes less memory, and learns the same.
run --max-steps 20 --report free.json >/dev/null
"$program" --data few --batch 8 --epochs 2 --seed 3 --max-steps 20 --memory-limit 0.0001 --report limited.json >/dev/null 2>limited.err
grep -q 'recompute.*: the step takes them all the same' limited.err || { echo "nobody was told that the limit cannot be kept"; exit 1; }
peak() { sed -n 's/.*"peak_gib": *\([0-9.e-]*\).*/\1/p' "$1"; }
awk -v limited="$(peak limited.json)" -v free="$(peak free.json)" 'BEGIN { exit !(0 < limited && limited < free) }' || { echo "the limit saves nothing: $(peak free.json) and $(peak limited.json)"; exit 1; }

expect_error() {
  local expected=$1 got
  shift
  got=$("$program" "$@" 2>&1 >/dev/null) && { echo "no error from: $*"; exit 1; }
  [ "$got" = "$expected" ] || { printf 'expected: %s\ngot:      %s\n' "$expected" "$got"; exit 1; }
}
mkdir empty
expect_error "error: [dataset] empty: expected IDX files (train-images-idx3-ubyte[.gz], ...), CIFAR files (data_batch_1.bin, \
... or train.bin, test.bin), records (train.rec, train.idx, property), shards (train*.tar and test*.tar or val*.tar), or folders train/<class>/ and test/<class>/ or val/<class>/" --data empty
expect_error "error: --data nowhere: there is no such folder" --data nowhere

# A run may be extended; where the schedule does not depend on the number of epochs, it becomes the longer run bit for bit.
constant="--schedule constant --warmup 0 --lr 0.02"
run $constant --save-weights long.safetensors >/dev/null
run $constant --epochs 1 --checkpoints extended >/dev/null
run --checkpoints extended --resume --save-weights extended.safetensors >resumed.log
grep -q 'resumed .* at step 44' resumed.log
cmp long.safetensors extended.safetensors || { echo "the extended run ended with other weights"; exit 1; }
