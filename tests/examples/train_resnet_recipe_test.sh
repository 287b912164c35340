#!/usr/bin/env bash
# Recipes as files, optimisers, accumulation, the best weights and runs that go wrong, as a user meets them.
# Usage: train_resnet_recipe_test.sh <program> <folder>
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/digits.sh"
export SINTER_DETERMINISTIC=1 COLUMNS=300  # no line is broken
program=$1 work=$2
rm -rf "$work"
mkdir -p "$work"
cd "$work"
export SINTER_CACHE_DIR=$PWD/plans  # others who measure at the same time must not change the plans, which bits depend on
fail() { echo "$1"; exit 1; }
run() { "$program" "$@" 2>errors.log; }

# Every optimiser learns.
for optimizer in sgd adamw lars lamb; do
  run --optimizer $optimizer --epochs 2 --seed 1 | tail -n 1 >accuracy.log
  accuracy=$(grep -Eo '[0-9]+\.[0-9]' accuracy.log | cut -d. -f1)
  [ "$accuracy" -ge 40 ] || fail "$optimizer ended at $accuracy %"
done

# A recipe is taken from a file, overridden, written out whole, and gives the same run when it is given again.
echo '{"optimizer": "lars", "lr": 4, "epochs": 1, "nesterov": true, "batch": 48}' >recipe.json
run --recipe recipe.json --seed 5 --checkpoints first --write-recipe whole.json --save-weights first.safetensors >first.log
grep -q '^  lars     learning rate 4 (one-cycle, warm-up 20 %), momentum 0.9 (Nesterov)' first.log || fail "the recipe was not taken"
for line in '"optimizer": "lars",' '"lr": 4,' '"batch": 48,' '"seed": 5,' '"trust-coefficient": 0.001,'; do
  grep -qF "$line" whole.json || fail "the recipe that was written lacks $line"
done
cmp whole.json first/recipe.json || fail "the run's folder has another recipe"
run --recipe whole.json --save-weights again.safetensors >/dev/null
cmp first.safetensors again.safetensors || fail "the recipe of a run gave another run"

# One that ships with Sinter is found by its name, and where it was found is said; what is there goes before.
run --recipe cifar10_resnet18.json --model resnet20 --epochs 1 --batch 32 --max-steps 1 >shipped.log || fail "no recipe of that name"
grep -q '^  recipe   .*/sinter/recipes/cifar10_resnet18.json$' shipped.log || fail "nobody said where the recipe was"
grep -q 'label smoothing 0.1$' shipped.log || fail "the recipe that ships was not taken"
echo '{"model": "resnet20", "label-smoothing": 0.3}' >cifar10_resnet18.json
run --recipe cifar10_resnet18.json --max-steps 1 >here.log && grep -q 'label smoothing 0.3$' here.log || fail "not the one of this folder"
run --recipe nowhere.json >/dev/null && fail "a recipe from nowhere"
grep -q -- '--recipe nowhere.json: there is no such file; .*/sinter/recipes has .*cifar10_resnet18.json' errors.log || fail "the message: $(cat errors.log)"
run --recipe ./nowhere.json >/dev/null && fail "a recipe from nowhere"

# It is compared on resume.
run --recipe recipe.json --checkpoints first --resume --seed 5 >resumed.log || fail "the same recipe was refused"
echo '{"optimizer": "lars", "lr": 3}' >other.json
run --recipe other.json --checkpoints first --resume --epochs 2 >/dev/null && fail "another recipe was taken"
grep -q -- '--lr  *4 -> 3' errors.log || fail "the difference was not told"
run --recipe other.json --checkpoints first --resume --epochs 2 --change-recipe --max-steps 40 >/dev/null || fail "not changed"

# Two batches a step: of one size, stopped and resumed within an epoch, bit for bit.
few_digits few 280 96
series="--data few --epochs 2 --seed 3 --batch 8 --accumulate 2"  # 35 batches: 17 steps, and one batch left over
run $series --save-weights whole.safetensors --report whole_report.json >/dev/null
grep -q '"steps": 34,' whole_report.json || fail "leftovers of an epoch made steps"
run $series --checkpoints series --max-steps 7 >/dev/null
run --checkpoints series --resume --max-steps 17 >/dev/null
run --checkpoints series --resume --save-weights resumed.safetensors >/dev/null
cmp whole.safetensors resumed.safetensors || fail "the resumed series ended with other weights"
run --batch 1000 --accumulate 2 >/dev/null && fail "a step of more batches than there are was taken"
grep -q 'an epoch has only 1 batch$' errors.log || fail "nobody was told: $(cat errors.log)"

# Averages of the weights are what is tested and saved, and go on bit for bit.
averages="--data few --batch 8 --epochs 2 --seed 3 --ema 0.98"
run $averages --save-weights average.safetensors >average.log
run --data few --batch 8 --epochs 2 --seed 3 --save-weights plain.safetensors >/dev/null
cmp -s average.safetensors plain.safetensors && fail "there are no averages"
run $averages --checkpoints average --max-steps 31 >/dev/null
run --checkpoints average --resume --save-weights resumed.safetensors >/dev/null
cmp average.safetensors resumed.safetensors || fail "the resumed run ended with other averages"
run --checkpoints average --resume --evaluate | tail -n 1 | diff <(tail -n 1 average.log) - || fail "others were tested"

# The best weights stand beside the last checkpoints and can be tested.
run --data few --batch 8 --epochs 3 --seed 2 --checkpoints best --report best.json >/dev/null
best=$(grep -Eo '"best_accuracy": [0-9.]+' best.json | cut -d' ' -f2)
run --data few --evaluate --load-weights best/best.safetensors --report tested.json >/dev/null
[ "$(grep -Eo '"accuracy": [0-9.]+' tested.json | cut -d' ' -f2)" = "$best" ] || fail "best.safetensors is not the best"

# A run that goes wrong says where: with this decay weights grow a thousandfold at each step.
for options in "" "--eager" "--precision mixed-f16"; do
  run --data few --batch 8 --epochs 2 --seed 3 --lr 1000 --weight-decay 1 --schedule constant --warmup 0 $options >/dev/null && fail "nothing went wrong"
  grep -Eq '^error: the last [0-9]+ steps were skipped.*the first bad value is (in the gradient|an output) of (layer|conv|fc|bn)' errors.log ||
    fail "it does not say where: $(cat errors.log)"
done
