#!/bin/sh
# Builds the fuzz targets with clang and runs each for a minute (or $1 seconds). Exits 1 at the first finding.
set -e
cd "$(dirname "$0")/.."
seconds=${1:-60}
tools/setup.sh fuzz
cmake -S . -B build-fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++-22 -DDOPPLER_FUZZ=ON -DDOPPLER_TESTS=OFF >/dev/null
cmake --build build-fuzz --target fuzz_targets
for source in tests/fuzz/*_fuzz.cpp; do
  target=$(basename "$source" _fuzz.cpp)
  corpus=$(mktemp -d)
  dictionary=
  [ -f "tests/fuzz/$target.dict" ] && dictionary="-dict=tests/fuzz/$target.dict"
  seeds=
  [ -d "tests/fuzz/${target}_seeds" ] && seeds="tests/fuzz/${target}_seeds"
  echo "fuzzing $target for $seconds s"
  if ! "build-fuzz/${target}_fuzz" -max_total_time="$seconds" -max_len=6000 -artifact_prefix=build-fuzz/ \
      -print_final_stats=1 $dictionary "$corpus" $seeds >"build-fuzz/$target.log" 2>&1; then
    tail -n 60 "build-fuzz/$target.log"
    echo "$target: a finding; the whole log is build-fuzz/$target.log"
    rm -r "$corpus"
    exit 1
  fi
  sed -n 's/^stat::number_of_executed_units: *\([0-9]*\)/  no finding in \1 inputs/p' "build-fuzz/$target.log"
  rm -r "$corpus"
done
