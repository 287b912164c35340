#!/usr/bin/env bash
# Runs every fuzz target for a while, as many at once as there are processors, beginning with the files of tests/data and the inputs
# kept in tests/fuzz/seeds. Usage: fuzz.sh <build folder> <seconds for each> [folder for corpora and findings]
# (cmake --preset fuzz && cmake --build build-fuzz --target fuzzers; .ci/fuzz.sh build-fuzz 60)
set -euo pipefail
build=$(cd "$1" && pwd) seconds=$2
mkdir -p "${3:-$build/fuzz}"
work=$(cd "${3:-$build/fuzz}" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Where a target's first byte chooses options.
with_options() { printf '\003' && cat "$1"; }
mkdir -p "$work"/corpus/{jpeg,png,webp,netpbm,shard,pickle,checkpoint}
for image in tests/data/images/*.jpg; do with_options "$image" >"$work/corpus/jpeg/${image##*/}"; done
for format in png webp; do
  for image in tests/fuzz/seeds/$format/*; do with_options "$image" >"$work/corpus/$format/${image##*/}"; done
done
for image in tests/fuzz/seeds/png/*; do { printf '\004' && cat "$image"; } >"$work/corpus/png/mask-${image##*/}"; done
for image in tests/data/images/*.p[gp]m; do { printf '\003' && tail -c +3 "$image"; } >"$work/corpus/netpbm/${image##*/}"; done
cp tests/data/verification/*.bin "$work/corpus/pickle"
mkdir -p "$work/corpus/pytorch_file" && cp tests/data/pytorch/*.p* "$work/corpus/pytorch_file"
mkdir -p "$work/shard"
for name in 0 1; do cp tests/data/images/gray.pgm "$work/shard/$name.pgm" && echo $name >"$work/shard/$name.cls"; done
for format in v7 ustar gnu pax; do tar --format=$format -b 1 -C "$work/shard" -cf "$work/corpus/shard/$format" 0.cls 0.pgm 1.cls 1.pgm; done
long=$(printf '%0150d' 0)
for ending in pgm cls; do cp "$work/shard/0.$ending" "$work/shard/$long.$ending"; done
for format in gnu pax; do tar --format=$format -b 1 -C "$work/shard" -cf "$work/corpus/shard/long-$format" "$long.cls" "$long.pgm"; done
for kept in tests/fuzz/seeds/*/; do
  kept=$(basename "$kept")
  [ "$kept" = png ] || [ "$kept" = webp ] || { mkdir -p "$work/corpus/$kept" && cp tests/fuzz/seeds/"$kept"/* "$work/corpus/$kept"; }
done

# fuzz <program>: an input that crashes, takes ten seconds or 512 MB fails and is kept in <work>/found.
fuzz() {
  local name=${1##*/} code=0
  name=${name%_fuzzer}
  mkdir -p "$work/corpus/$name" "$work/found"
  "$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=512 -max_len=16384 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="$work/found/$name-" "$work/corpus/$name" >"$work/$name.log" 2>&1 || code=$?
  echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$name.log") inputs, at most $(sed -n 's/^stat::peak_rss_mb: *//p' "$work/$name.log") MB"
  [ $code = 0 ] || { echo "$name FAILED:" && tail -n 40 "$work/$name.log"; }
  return $code
}
export -f fuzz
export work seconds ASAN_OPTIONS=detect_leaks=1:quarantine_size_mb=64 SINTER_LOG=off
find "$build/tests/fuzz" -maxdepth 1 -name '*_fuzzer' -type f | sort | xargs -P "$(nproc)" -I{} bash -c 'fuzz {}'
