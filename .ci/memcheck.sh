#!/usr/bin/env bash
# Runs tests of what touches memory by hand under valgrind, which sees reads of what was not written and accesses beyond the
# ends of blocks: the core, the readers of files, and each op on a few calls. With SINTER_MEMORY=passthrough each block is the
# system's own; JSIMD_FORCENONE leaves libjpeg's assembly out, of which valgrind loses track. Builds nothing; .ci/release has the
# sanitizers over everything. Usage: memcheck.sh <build folder>
set -euo pipefail
build=$(cd "$1" && pwd)
suppressions=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/valgrind.supp
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# memcheck <program> <part> <parts> <filter>: one line, and all that it says if it fails.
memcheck() {
  local name=$1 part=$2 parts=$3 filter=$4 log="$work/$1-$2" code=0
  (cd "$work" && GTEST_TOTAL_SHARDS=$parts GTEST_SHARD_INDEX=$part JSIMD_FORCENONE=1 SINTER_MEMORY=passthrough SINTER_THREADS=2 SINTER_TEST_CASES=2 timeout 1800 \
    valgrind -q --error-exitcode=9 --suppressions="$suppressions" "$build/tests/$name" --gtest_brief=1 --gtest_filter="$filter") >"$log" 2>&1 || code=$?
  if [ $code != 0 ] || ! grep -q '^\[  PASSED  \]' "$log"; then
    echo "$name, part $((part + 1)) of $parts, FAILED with exit code $code:" && tail -n 200 "$log"
    return 1
  fi
  echo "$name, part $((part + 1)) of $parts: $(sed -n 's/^\[  PASSED  \] \(.*\)\.$/\1/p' "$log") passed"
}
export -f memcheck
export build suppressions work

# Left out: tests that fork or draw many numbers, those of time and of many files, which valgrind makes thirty times as slow.
{
  echo core_test 0 1 "-*Stress*:*Random*:*Fork*:*InTheTimeOf*"
  for part in 0 1 2 3; do echo ops_test $part 4 "*OpSamples*"; done
  echo nn_test 0 1 "ImageFolder.*:ImageOps.*:*Jpeg.*:Png.*:WebP.*:Netpbm.*:Exif.*:Tar.*:Shards.*:*Records.*:Pickle.*:*Safetensors.*:*Pytorch*:Idx.*:Cifar.*:Scalars.*:AlignTest.*:TextLinesTest.*:LandmarksTest.*:IjbListsTest.*-*.KeepsItsLimits:*.FindsEachOfManyClassesAtOnce:*.PartsHaveALimit:*.HugeCountsCostNothing:PytorchWriter.RefusesWhatPyTorchCannotRead:HostilePytorch.PartsThatAreRepeatedCostNothing"
} | xargs -P "$(nproc)" -L 1 bash -c 'memcheck "$@"' memcheck
