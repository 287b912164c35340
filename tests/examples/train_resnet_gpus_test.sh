#!/usr/bin/env bash
# train_resnet on all GPUs of this machine: norms over the whole batch, a run that is stopped there and resumed on fewer, and ranks
# that are late, killed or stopped. Exit code 77 where there are fewer than two. Usage: train_resnet_gpus_test.sh <program> <folder>
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
unset CUDA_VISIBLE_DEVICES
program=$1 work=$2
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true)
if [ "$gpus" -lt 2 ]; then
  echo "$gpus GPUs: not run"
  exit 77
fi
begin_in "$work"
while [ $((96 % gpus)) != 0 ]; do gpus=$((gpus - 1)); done  # they share batches of 96 equally
last=$((gpus - 1))

# Four classes of 96 grey images of noise. (Digits have large black areas: many equal numbers, whose sign changes at once where
# a sum is rounded in another way.) After some steps that happens here too.
noise() {
  printf 'P5 8 8 255\n'
  LC_ALL=C awk -v seed="$1" 'BEGIN { srand(seed); for (i = 0; i < 64; ++i) printf "%c", 32 + int(95 * rand()) }'
}
number=0
for class in a b c d; do
  mkdir -p data/{train,test}/$class
  for image in $(seq 96); do noise $((number += 1)) >data/train/$class/$image.pgm; done
  for image in $(seq 12); do noise $((number += 1)) >data/test/$class/$image.pgm; done
done
options="--data data --batch 96 --workers 1"

losses() { sed -nE 's/.*"train\/loss": ?([0-9.]+).*/\1/p' "$1/scalars.jsonl"; }
# near SHARE FILE FILE: as many numbers in both, at least one, each within that share of the first.
near() {
  paste "$2" "$3" | awk -v share="$1" '{ d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > share * $1) exit 1 } END { if (NR == 0) exit 1 }'
}

norms_see_the_whole_batch() {
  local way steps="$options --epochs 1 --max-steps 4 --lr 0.02 --log-every 1 --precision f32 --sync-batch-norm"
  run 0 "$program" $steps --log-dir alone
  losses alone >alone.txt
  [ "$(wc -l <alone.txt)" = 4 ] || fail "not 4 losses"
  for way in --job --eager; do
    run 0 "$program" $steps --log-dir "all$way" --gpus "$gpus" $way
    losses "all$way" >all.txt
    near 1e-4 alone.txt all.txt || fail "losses differ: $(paste alone.txt all.txt)"
  done
}

# Two epochs, stopped in the middle of the second: on as many GPUs it ends with the same bits, on fewer it goes on with the same loss.
checkpoints_know_no_number_of_gpus() {
  export SINTER_DETERMINISTIC=1
  local count recipe="$options --epochs 2 --precision f32 --sync-batch-norm"
  run 0 "$program" $recipe --gpus "$gpus" --log-every 1 --log-dir whole --checkpoints whole --save-weights whole.safetensors
  run 0 "$program" $recipe --gpus "$gpus" --checkpoints stopped --max-steps 6
  for count in "$gpus" $((gpus / 2)) 1; do
    [ ! -e "on$count" ] || continue
    cp -r stopped "on$count"
    run 0 "$program" --checkpoints "on$count" --resume --gpus "$count" --log-every 1 --save-weights "on$count.safetensors"
    says_like "resumed .* at step 6"
    losses "on$count" >resumed.txt
    losses whole | tail -n "$(wc -l <resumed.txt)" >rest.txt
    near 1e-4 <(head -n 1 rest.txt) <(head -n 1 resumed.txt) || fail "the first loss on $count GPUs: $(head -n 1 resumed.txt) for $(head -n 1 rest.txt)"
  done
  unset SINTER_DETERMINISTIC
  cmp whole.safetensors "on$gpus.safetensors" || fail "the resumed run ended with other weights"
}

# begin FOLDER OPTIONS...: starts a long run on all GPUs, and waits for its first checkpoint.
begin() {
  local folder=$1
  shift
  "$program" $options --gpus "$gpus" --epochs 100000 --checkpoint-every 20 --checkpoints "$folder" "$@" >out 2>err &
  main=$!
  for _ in $(seq 900); do
    [ -z "$(latest "$folder" 2>/dev/null)" ] || return 0
    sleep 0.1
  done
  fail "no checkpoint came"
}
end() { code=0; wait $main || code=$?; }
rank() { pgrep -P $main | sed -n "$(($1 + 1))p"; }  # in the order in which they were started
# all_name PATTERN: every rank but the last says it.
all_name() {
  local of
  for of in $(seq 0 $((last - 1))); do complains_like "\[rank $of\] error: .*$1"; done
}

a_killed_rank_is_named_on_all() {
  begin killed
  local victim start=$SECONDS
  victim=$(rank $last)
  kill -KILL "$victim"
  end
  all_name "rank $last \(.*, process $victim\) is lost"
  [ "$code" = 137 ] || fail "exit code $code"
  [ $((SECONDS - start)) -le 30 ] || fail "took $((SECONDS - start)) s"
}

# stopped FOLDER PATTERN OPTIONS...: the last rank is stopped; it is named within 25 s.
stopped() {
  local folder=$1 pattern=$2 victim
  shift 2
  begin "$folder" "$@"
  victim=$(rank $last)
  kill -STOP "$victim"
  for _ in $(seq 250); do ! grep -q "\[rank 0\] error" err || break; sleep 0.1; done
  sleep 1
  kill -KILL "$victim"
  end
  all_name "$pattern"
}
a_stopped_rank_is_named_on_all() { stopped silent "rank $last \(.*\) is lost"; }
a_rank_that_is_too_late_for_a_step_is_named_on_all() { stopped late "furthest behind is rank $last" --rank-timeout 5; }

# Ten seconds behind the others, which wait for it.
all_wait_for_a_rank_that_comes_late() {
  local of pids=() port=$((10000 + $$ % 10000)) code
  for of in $(seq 0 $last); do
    (
      [ "$of" != $last ] || sleep 10
      exec env RANK="$of" LOCAL_RANK="$of" WORLD_SIZE="$gpus" MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        "$program" $options --epochs 1 >"out$of" 2>"err$of"
    ) &
    pids+=($!)
  done
  for of in $(seq 0 $last); do
    code=0
    wait "${pids[$of]}" || code=$?
    [ $code = 0 ] || fail "exit code $code of rank $of: $(cat "err$of")"
  done
  grep -q "test accuracy" out0 || fail "no accuracy"
}

for story in norms_see_the_whole_batch checkpoints_know_no_number_of_gpus a_killed_rank_is_named_on_all a_stopped_rank_is_named_on_all \
  a_rank_that_is_too_late_for_a_step_is_named_on_all all_wait_for_a_rank_that_comes_late; do
  rm -f out err
  $story
  echo "$story: passed on $gpus GPUs ($SECONDS s)"
done
