#!/usr/bin/env bash
# Both trainers under every signal that a supervisor sends, at random moments: the run saves and ends with 128 + signal, or saves and
# goes on, and in the end has the weights of a run that nobody disturbed, bit for bit.
# Usage: signals_test.sh <train_resnet> <train_insightface> <folder> [<rounds> [<ranks> [<seed>]]]; scripts/nightly.sh has 60 rounds, which take half an hour.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
resnet=$1 insightface=$2 work=$3 rounds=${4:-1} ranks=${5:-1}
RANDOM=${6:-$$}
echo "seed $RANDOM"
begin_in "$work"

# A run that nothing else ends. begin ARGUMENTS...: starts it, or goes on with it, as $child, its output in `out` and `err`.
faces="--synthetic 12 $small_backbone --dims 8 --image-size 16 --batch 10 --lr 0.02"
train_resnet() { command=("$resnet" --threads 1 --epochs 1000); }
train_insightface() { command=("$insightface" --threads 1 --epochs 1000 $faces); }
of_two_ranks() { command=("$resnet" --threads 1 --epochs 1000 --batch 24 --workers 0 --processes 2); }
begin() {
  rm -f out err  # what an earlier one said is not this one's
  local resume=
  [ ! -e stopped ] || resume=--resume
  "${before[@]}" "${command[@]}" --checkpoints stopped $resume --save-weights stopped.safetensors >out 2>err &
  child=$!
}
before=(env --default-signal=HUP)  # which nohup around this test would have it ignore
most=$((rounds == 1 ? 300 : 800))
# Waits until it trains, and then for up to $most ms more.
trains() {
  local i
  for ((i = 0; i < 6000; ++i)); do
    ! grep -qs '^  weights' out || break
    kill -0 $child 2>/dev/null || fail "it ended by itself"
    sleep 0.01
  done
  sleep "0.$(printf %03d $((${1:-0} + RANDOM % most)))"
}
ends_with() {
  local code=0
  { wait $child; } 2>/dev/null || code=$?
  [ $code = "$1" ] || fail "exit code $code in place of $1"
  says_like '^stopped; go on with --checkpoints stopped --resume$'
  ! grep -E 'warning|error|damaged' out err || fail "complaints"
}
# twice SIGNAL CODE: two of them, a millisecond apart, as supervisors send them to a process and to its group.
twice() {
  begin
  trains
  kill -"$1" $child
  sleep 0.001
  kill -"$1" $child 2>/dev/null || true
  ends_with "$2"
}

sigterm_twice() { twice TERM 143; }
sighup_twice() { twice HUP 129; }
ctrl_c_once_that_comes_twice() { twice INT 130; }
warned_of_a_run_limit() {
  if [ $((RANDOM % 2)) = 0 ]; then twice USR2 140; else twice XCPU 152; fi
}

timeout_around_it() {
  before=(timeout --preserve-status "$((1 + RANDOM % (rounds == 1 ? 1 : 2))).$((RANDOM % 10))")
  begin
  before=(env --default-signal=HUP)
  local code=0
  wait $child || code=$?
  # Where the machine is slow it may end before it trains, and then at once.
  [ $code = 143 ] || fail "exit code $code in place of 143"
  ! grep -qs '^  weights' out || says_like '^stopped; go on with --checkpoints stopped --resume$'
}

sigusr1_saves_and_goes_on() {
  begin
  local i
  for i in 1 2 3; do
    trains
    kill -USR1 $child || fail "it did not survive SIGUSR1"
  done
  for ((i = 0; i < 6000; ++i)); do
    ! grep -qsE '^step [0-9]+ is saved, as SIGUSR1 asks$' out || break
    kill -0 $child 2>/dev/null || fail "it ended with SIGUSR1"
    sleep 0.01
  done
  says_like '^step [0-9]+ is saved, as SIGUSR1 asks$'
  # What it saved is sound without what comes after it.
  local saved
  saved=$(ls stopped | grep '^checkpoint-' | tail -n 1)
  kill -KILL $child
  { wait $child; } 2>/dev/null || true
  [ -s "stopped/$saved/manifest.txt" ] || fail "no sound checkpoint"
  sleep 0.2  # ranks whose parent is killed get SIGTERM and save
  while pgrep -f -- "$resnet.*--checkpoints stopped --resume --save-weights" >/dev/null; do sleep 0.1; done
}

supervisors_lose_nothing() {
  local told
  for ((round = 1; round <= rounds; ++round)); do
    for story in sigterm_twice timeout_around_it sigusr1_saves_and_goes_on sighup_twice ctrl_c_once_that_comes_twice warned_of_a_run_limit; do
      $story
      ! grep -q 'damaged' out err || fail "a checkpoint is damaged"
    done
  done
  story=the_end_is_that_of_an_undisturbed_run
  twice TERM 143
  told=$(sed -n 's/^resumed .* at step \([0-9]*\)$/\1/p' out)
  local step
  step=$(sed -n 's/^ *"step": \([0-9]*\),*$/\1/p' "$(find stopped -name state.json | sort | tail -n 1)")
  [ "$step" -ge "$told" ] && [ "$step" -gt 0 ] || fail "step $step after $told"
  "${command[@]}" --max-steps "$step" --save-weights whole.safetensors >out 2>err || fail "the undisturbed run"
  cmp whole.safetensors stopped.safetensors || fail "other weights after step $step"
  echo "$1: $rounds rounds, step $step reached"
}

# A step of many images takes seconds: Ctrl-C, and again. Where the first came at a step's end, the run is over by then: once more.
a_second_ctrl_c_is_urgent() {
  story=a_second_ctrl_c_is_urgent
  command=("$resnet" --threads 1 --model resnet110 --batch 1400)
  local code try
  for try in 1 2 3 4 5 6; do
    begin
    trains 400
    kill -INT $child
    sleep 1.1
    if kill -INT $child 2>/dev/null; then
      code=0
      { wait $child; } 2>/dev/null || code=$?
      [ $code = 130 ] || fail "exit code $code in place of 130"
      grep -q '^stopped' out || return 0
    fi
    wait $child 2>/dev/null || true
  done
  fail "it took its time, $try times"
}

# Without a folder for checkpoints there is a line, and training goes on; where there is nothing to save, nothing happens.
sigusr1_never_ends_a_run() {
  story=sigusr1_never_ends_a_run
  "$resnet" --threads 1 --epochs 1000 >out 2>err &
  child=$!
  trains
  kill -USR1 $child
  local i
  for ((i = 0; i < 3000; ++i)); do
    ! grep -qs 'SIGUSR1 asks for a checkpoint, but there is no --checkpoints' err || break
    sleep 0.01
  done
  kill -TERM $child
  local code=0
  { wait $child; } 2>/dev/null || code=$?
  [ $code = 143 ] && [ "$(grep -c SIGUSR1 err)" = 1 ] || fail "exit code $code"
}

# Ranks that nearly always verify: one is stopped in the middle, the other may be through, and both have to know.
ranks_stop_within_a_test_too() {
  story=ranks_stop_within_a_test_too
  mkdir -p people
  local person image
  for person in ann bob eve; do
    mkdir -p people/$person
    for image in 1 2 3 4 5 6 7 8; do
      { printf 'P5 16 16 255\n' && head -c 256 < <(yes "$person $person $image"); } >people/$person/$image.pgm
    done
  done
  command=("$insightface" --threads 1 --epochs 1000 $faces --processes 2 --verify people --verify-every 1)
  for ((round = 1; round <= rounds + 1; ++round)); do
    begin
    trains
    for rank in $(pgrep -P $child | head -n $((1 + RANDOM % 2))); do kill -TERM "$rank" || true; done
    ends_with 143
  done
}

lives="train_resnet train_insightface"
[ "$ranks" = 0 ] || lives+=" of_two_ranks"
for life in $lives; do
  rm -rf stopped out err
  $life
  supervisors_lose_nothing $life
done
stories="a_second_ctrl_c_is_urgent sigusr1_never_ends_a_run"
[ "$ranks" = 0 ] || stories+=" ranks_stop_within_a_test_too"
for story in $stories; do
  rm -rf stopped out err
  $story
done
echo "all passed"
