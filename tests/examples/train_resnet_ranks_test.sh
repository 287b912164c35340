#!/usr/bin/env bash
# train_resnet as several processes: one voice, one set of files, the same checkpoints whatever their number, honest
# exit codes, and nobody left behind. Usage: train_resnet_ranks_test.sh <program> <folder>
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
program=$1 work=$2
begin_in "$work"

# Two classes of 24 grey images of 8x8 pixels to train on, and two to test on each: two batches of 24 an epoch, where digits have sixty.
for class in a b; do
  mkdir -p few/{train,test}/$class
  for image in $(seq 24); do picture "$class $image" 8 >few/train/$class/$image.pgm; done
  for image in 1 2; do picture "$class test $image" 8 >few/test/$class/$image.pgm; done
done

# The processes of this test's folder that run still; stories beside others have another tag.
tag=$$
left() { pgrep -f "$program.* --checkpoints [a-z0-9]*-of-$tag" || true; }
none_left() {
  for _ in $(seq 50); do
    [ -n "$(left)" ] || return 0
    sleep 0.1
  done
  fail "still there: $(left)"
}
# begin <processes> <folder>: starts a long run and waits for its first checkpoint.
begin() {
  "$program" --threads 1 --processes "$1" --epochs 200 --batch 24 --workers 0 --checkpoint-every 5 --checkpoints "$2" >out 2>err &
  main=$!
  for _ in $(seq 900); do
    [ -z "$(latest "$2" 2>/dev/null)" ] || return 0
    sleep 0.1
  done
  fail "no checkpoint came"
}
end() { code=0; wait $main || code=$?; }
rank() { pgrep -P $main | sed -n "$(($1 + 1))p"; }  # in the order in which they were started

one_voice_and_one_set_of_files() {
  COLUMNS=200 run 0 "$program" --threads 1 --processes 2 --data few --epochs 2 --batch 24 --checkpoints "voice-of-$tag" --report voice.json --save-weights voice.safetensors
  says_like "^  ranks    2 \(.*\), 12 images of each batch on each$"
  says_like "2 processes, [0-9]+ each"
  [ "$(grep -c "test accuracy" out)" = 1 ] || fail "not one voice"
  [ "$(grep -cE "^epoch +[12]/2 " out)" = 2 ] || fail "not one line an epoch"
  ! grep -E "warning|error|rank 1" err || fail "complaints"
  [ "$(value voice.json processes)" = 2 ] || fail "the report does not say 2"
  [ -s voice.safetensors ] && [ -s "voice-of-$tag/curves.svg" ] || fail "files are missing"
}

# With norms over all processes, several train as one does, and drop the same branches: in the first steps, before
# rounding is made much of.
norms_see_the_whole_batch() {
  local words="--threads 1 --epochs 1 --batch 24 --max-steps 3 --log-every 1 --workers 0 --sync-batch-norm --drop-path 0.5" way
  losses() { sed -nE 's/.*"train\/loss": ?([0-9.]+).*/\1/p' "$1/scalars.jsonl"; }
  run 0 "$program" $words --log-dir norms-1
  [ "$(losses norms-1 | wc -l)" = 3 ] || fail "not 3 losses"
  for way in --job --eager; do
    run 0 "$program" $words --log-dir "norms-2$way" --processes 2 $way
    paste <(losses norms-1) <(losses "norms-2$way") | awk '{ d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > 1e-3 * $1) exit 1 }' ||
      fail "losses differ: $(paste <(losses norms-1) <(losses "norms-2$way"))"
  done
}

checkpoints_know_no_number_of_processes() {
  local folder=number-of-$tag processes
  run 0 "$program" --threads 1 --processes 2 --data few --epochs 5 --batch 24 --checkpoints "$folder" --max-steps 3
  for processes in 1 3; do
    cp -r "$folder" "$processes-$folder"
    run 0 "$program" --threads 1 --processes "$processes" --checkpoints "$processes-$folder" --resume --max-steps 7
    says_like "resumed .* at step 3"
    [ "$(value "$(latest "$processes-$folder")" step)" = 7 ] || fail "not at step 7"
    [ "$(value "$(latest "$processes-$folder")" epoch_images)" = 24 ] || [ "$(value "$(latest "$processes-$folder")" loader_batch)" -gt 0 ] || fail "images"
  done
}

sigterm_saves_once_and_ends_with_143() {
  local target
  for target in main 0 1 all; do
    local folder=term$target-of-$tag
    begin 2 "$folder"
    case $target in
      main) kill -TERM $main ;;
      all) kill -TERM $main "$(rank 0)" "$(rank 1)" ;;  # as service managers do
      *) kill -TERM "$(rank $target)" ;;
    esac
    end
    [ "$code" = 143 ] || fail "exit code $code of SIGTERM to $target"
    says_like "^stopped; go on with --checkpoints $folder --resume$"
    ! grep -E "warning|error|rank 1" err || fail "complaints"
    none_left
  done
  begin 2 "int-of-$tag"
  kill -INT $main
  end
  [ "$code" = 130 ] || fail "exit code $code of SIGINT"
}

a_dead_rank_ends_the_run_and_is_named() {
  local signal
  for signal in KILL STOP; do
    local folder=dead${signal,,}-of-$tag victim start=$SECONDS
    begin 2 "$folder"
    victim=$(rank 1)
    start=$SECONDS
    kill -$signal "$victim"
    # Else the 20 s of grace pass; not before the other has ended, which on a busy machine takes longer than it should.
    [ $signal = KILL ] || ( for _ in $(seq 600); do [ -n "$(rank 1)" ] || break; sleep 0.1; done; sleep 2; kill -KILL "$victim" ) &
    end
    complains_like "\[rank 0\] error: \[comm\] rank 1 \(.*, process $victim\) is lost"
    [ $((SECONDS - start)) -le 30 ] || fail "took $((SECONDS - start)) s"
    [ "$code" = $([ $signal = KILL ] && echo 137 || echo 1) ] || fail "exit code $code"
    none_left
  done
}

# Before its handlers stand, and before the ranks have met.
ended_early() {  # SIGNAL VICTIM
  local signal=$1 victim=$2 start
  mkdir "early$1$2" && cd "early$1$2"
  "$program" --threads 1 --processes 2 --epochs 200 --batch 24 >out 2>err &
  main=$!
  for _ in $(seq 200); do
    [ -z "$(rank $victim)" ] || break
    sleep 0.01
  done
  start=$SECONDS
  kill -$signal "$(rank $victim)"
  end
  [ "$code" = $([ $signal = TERM ] && echo 143 || echo 137) ] || fail "exit code $code of SIG$signal to rank $victim"
  [ $((SECONDS - start)) -le 8 ] || fail "took $((SECONDS - start)) s"
  [ $signal = TERM ] || complains_like "error: rank $victim was ended by signal 9"
  [ "$(grep -c "was ended by signal" err)" -le 1 ] || fail "names others that only the parent has ended"
}
a_rank_that_is_ended_early_is_named_soon() {
  local signal first
  for signal in TERM KILL; do
    (ended_early $signal 0) &
    first=$!
    (ended_early $signal 1) && wait $first || exit 1
  done
}

# As where a parent ignores the end of its children, which programs inherit.
children_are_waited_for_where_their_ends_are_ignored() {
  run 0 env --ignore-signal=CHLD "$program" --threads 1 --processes 2 --data few --epochs 1 --batch 24
}

# A terminal that stops who writes from the background (stty tostop): ranks are process groups of their own.
ranks_write_to_a_terminal_that_stops_the_background() {
  if ! command -v script >/dev/null; then
    echo "script is not here: the terminal's part is left out"
    return
  fi
  script -qec "stty tostop; '$program' --threads 1 --processes 2 --data few --epochs 1 --batch 24" /dev/null >out 2>err ||
    fail "exit code $?"
  says_like "test accuracy"
}

# Ctrl-Z reaches the parent alone; suspended for longer than a silence may last (SUSPENDED_SECONDS=15), all go on.
a_run_that_is_suspended_goes_on() {
  begin 2 "suspended-of-$tag"
  kill -TSTP $main
  sleep "${SUSPENDED_SECONDS:-1}"
  grep -q "^State:.*T" "/proc/$(rank 1)/status" || fail "its ranks go on"
  kill -CONT $main
  sleep 1
  kill -TERM $main
  end
  [ "$code" = 143 ] || fail "exit code $code"
  ! grep -E "warning|error" err || fail "complaints"
}

a_parent_that_is_killed_leaves_nobody() {
  begin 2 "orphan-of-$tag"
  kill -KILL $main
  end
  none_left
}

mistakes_are_told() {
  run 1 "$program" --processes 3 --batch 32 --epochs 1
  complains_like "--batch 32: 3 processes cannot share it equally"
  run 1 "$program" --processes 2 --batch 5000
  complains_like "--batch 5000: 2 processes cannot share all 1437 images equally"
  run 2 "$program" --processes 2 --gpus 2
  complains_like "--processes and --gpus cannot both be given"
  run 1 env CUDA_VISIBLE_DEVICES= "$program" --gpus 2  # once, and not by each rank
  [ "$(wc -l <err)" = 1 ] || fail "--gpus without a GPU: $(cat err)"
  run 1 env RANK=0 WORLD_SIZE=4 MASTER_ADDR=localhost "$program" --processes 2
  complains_like "--processes 2: environment has started 4 processes"
  run 1 env RANK=0 "$program"
  complains_like "RANK is set but WORLD_SIZE is not"
  mkdir full && touch full/x
  run 1 "$program" --processes 2 --checkpoints full/x --epochs 1
  complains_like "\[rank 1\] error: \[comm\] rank 0 .* is lost: it failed: "
}

# Two hosts whose folders differ: told on both before the first step.
other_data_on_one_rank_are_told_on_all() {
  local part class image folder rank port=$((10000 + $$ % 10000)) pids start=$SECONDS
  for folder in here there; do
    for part in train test; do
      for class in a b; do
        mkdir -p $folder/$part/$class
        for image in 1 2 3 4; do { printf 'P5 8 8 255\n'; head -c 64 < <(yes "$class $image"); } >$folder/$part/$class/$image.pgm; done
      done
    done
  done
  both() {  # ARGUMENTS...: each rank with its own folder
    port=$((port + 1)) pids=()
    for rank in 0 1; do
      env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 100 "$program" --threads 1 \
        --data "$([ $rank = 0 ] && echo here || echo there)" --epochs 1 --batch 4 "$@" >out$rank 2>err$rank &
      pids+=($!)
    done
    code0=0 code1=0
    wait "${pids[0]}" || code0=$?
    wait "${pids[1]}" || code1=$?
  }
  told() {  # WORDS: by both
    [ "$code0 $code1" = "1 1" ] || fail "exit codes $code0 and $code1"
    for rank in 0 1; do grep -qE "^\[rank $rank\] error: .*the ranks differ in $1" err$rank || fail "rank $rank: $(cat err$rank)"; done
    ! grep -q "^epoch" out0 out1 || fail "steps were taken"
  }
  both && [ "$code0 $code1" = "0 0" ] || fail "the same data: $(cat err0 err1)"
  rm there/train/b/4.pgm
  both
  told "the number of training images: 8 on rank 0 \(.*\), from here; 7 on rank 1 \(.*\), from there"
  cp here/train/b/4.pgm there/train/b/5.pgm
  both
  told "the training images \(their fingerprint\): [0-9a-f]{16} on rank 0 \(.*\), from here; [0-9a-f]{16} on rank 1 \(.*\), from there"
  mv there/train/b/5.pgm there/train/b/4.pgm
  mv there/test/b there/test/c
  both
  for rank in 0 1; do grep -q 'error: ' err$rank || fail "rank $rank says nothing"; done
  mv there/test/c there/test/b
  [ $((SECONDS - start)) -lt 60 ] || fail "took $((SECONDS - start)) s"
}

# Runs that stopped at the same step are not the same run.
other_checkpoints_on_one_rank_are_told_on_all() {
  local rank port=$((30000 + $$ % 10000)) pids try
  for rank in 0 1; do
    run 0 "$program" --threads 1 --data few --epochs 2 --batch 24 --seed $rank --max-steps 1 --checkpoints "own-$rank-of-$tag"
  done
  for try in other same; do
    port=$((port + 1)) pids=()
    for rank in 0 1; do
      env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 100 "$program" --threads 1 \
        --checkpoints "own-$rank-of-$tag" --resume --seed 0 --change-recipe >out$rank 2>err$rank &
      pids+=($!)
    done
    code0=0 code1=0
    wait "${pids[0]}" || code0=$?
    wait "${pids[1]}" || code1=$?
    if [ $try = other ]; then
      [ "$code0 $code1" = "1 1" ] || fail "exit codes $code0 and $code1"
      for rank in 0 1; do
        grep -qE "^\[rank $rank\] error: .*the ranks differ in the contents of the newest checkpoint" err$rank || fail "rank $rank: $(cat err$rank)"
      done
      rm -r "own-1-of-$tag"
      cp -r "own-0-of-$tag" "own-1-of-$tag"
    else
      [ "$code0 $code1" = "0 0" ] || fail "copies of a checkpoint: $(cat err0 err1)"
    fi
  done
}

# A rank that is slower than --rank-timeout.
the_time_for_other_ranks_is_an_option() {
  local folder=slow-of-$tag start victim
  "$program" --threads 1 --processes 2 --epochs 200 --batch 24 --workers 0 --checkpoint-every 5 --checkpoints "$folder" --rank-timeout 5 >out 2>err &
  main=$!
  for _ in $(seq 200); do [ -z "$(latest "$folder" 2>/dev/null)" ] || break; sleep 0.1; done
  start=$SECONDS
  victim=$(rank 1)
  kill -STOP "$victim"
  for _ in $(seq 150); do ! grep -q "rank 0\] error" err || break; sleep 0.1; done
  complains_like "\[rank 0\] error: \[comm\] .* of rank 0 has failed: .*furthest behind is rank 1"
  kill -KILL "$victim"
  end
  [ $((SECONDS - start)) -lt 20 ] || fail "took $((SECONDS - start)) s"
  none_left
}

# Mixing draws alike on all ranks, so that it goes on where it stopped; and what was tested is what is saved.
mixing_goes_on_and_the_tested_weights_are_saved() {
  local folder=mixed-of-$tag options="--threads 1 --processes 2 --epochs 1 --batch 96 --seed 3 --mixup 1 --cutmix 1"
  run 0 "$program" $options --save-weights mixed.safetensors --report mixed.json
  run 0 "$program" $options --checkpoints "$folder" --max-steps 7
  run 0 "$program" --threads 1 --processes 2 --checkpoints "$folder" --resume --save-weights resumed.safetensors
  cmp mixed.safetensors resumed.safetensors || fail "the resumed run ended with other weights"
  run 0 "$program" --threads 1 --evaluate --load-weights mixed.safetensors --report tested.json
  [ "$(value mixed.json accuracy)" = "$(value tested.json accuracy)" ] || fail "others were tested than saved"
  # The mistakes of all ranks; and no batch has to be divided where nothing is trained.
  run 0 "$program" --threads 1 --processes 3 --evaluate --load-weights mixed.safetensors --report three.json
  mistakes() { sed -n '/"mistakes"/,/^  ]/p' "$1" | grep -E '"(index|class|taken_for)"'; }
  [ "$(mistakes tested.json | wc -l)" -ge 9 ] || fail "no mistakes: $(cat tested.json)"
  for tested in mixed three; do
    diff <(mistakes tested.json) <(mistakes $tested.json) || fail "other mistakes in $tested.json"
  done
  # Nor need there be as many training images as processes.
  run 0 "$program" --threads 1 --data few --epochs 1 --batch 24 --save-weights few.safetensors
  cp -r few fewer
  rm fewer/train/*/[2-9]*.pgm fewer/train/*/1?.pgm
  run 0 "$program" --threads 1 --processes 3 --data fewer --evaluate --load-weights few.safetensors
  quiet "of each batch on each"
}

under_mpirun() {
  if ! command -v mpirun >/dev/null; then
    echo "mpirun is not here: its part is left out"
    return
  fi
  run 0 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -np 2 "$program" --threads 1 --data few --epochs 1 --batch 24
  says_like "^  ranks    2 \(mpirun\)"
}

# As srun sets them.
under_srun() {
  local rank pids=() port=$((20000 + $$ % 10000))
  for rank in 0 1; do
    env SLURM_PROCID=$rank SLURM_NTASKS=2 SLURM_LOCALID=$rank SLURM_STEP_ID=0 SLURM_JOB_ID=$$ \
      SLURM_JOB_NODELIST=localhost SINTER_PORT=$port "$program" --threads 1 --data few --epochs 1 --batch 24 >out$rank 2>err$rank &
    pids+=($!)
  done
  wait "${pids[0]}" && wait "${pids[1]}" || fail "a rank failed: $(cat err0 err1)"
  mv out0 out
  says_like "^  ranks    2 \(srun\)"
}

tell() {  # STORY...: which of them have passed, and when
  local story
  for story in "$@"; do
    rm -f out err
    $story
    echo "$story: passed ($SECONDS s)"
  done
}
# Two stories that wait, beside the others.
(mkdir beside && cd beside && tag=beside-$$ && tell a_dead_rank_ends_the_run_and_is_named the_time_for_other_ranks_is_an_option) &
beside=$!
tell one_voice_and_one_set_of_files norms_see_the_whole_batch checkpoints_know_no_number_of_processes sigterm_saves_once_and_ends_with_143 \
  a_rank_that_is_ended_early_is_named_soon children_are_waited_for_where_their_ends_are_ignored \
  ranks_write_to_a_terminal_that_stops_the_background a_run_that_is_suspended_goes_on a_parent_that_is_killed_leaves_nobody \
  mistakes_are_told other_data_on_one_rank_are_told_on_all other_checkpoints_on_one_rank_are_told_on_all mixing_goes_on_and_the_tested_weights_are_saved under_mpirun under_srun
wait $beside || exit 1
