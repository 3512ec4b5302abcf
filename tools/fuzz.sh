#!/bin/bash
# Builds the fuzz targets (tests/fuzz) with clang and runs each; exits 1 where one finds something.
#   tools/fuzz.sh [SECONDS [TARGET…]]     each for so long (default: a minute), beginning with what tests/fuzz/corpus keeps
#   KEEP=1 tools/fuzz.sh …                and puts what was found new into tests/fuzz/corpus, minimised
# An input may take 25 seconds (the sanitizers' included) and 2 GiB, so that work or memory that grows out of proportion is a
# finding, too. How much of the code that a target is for was reached is counted in regions of it.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
tools/setup.sh fuzz
cmake -S . -B build-fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++-22 -DDOPPLER_FUZZ=ON -DDOPPLER_TESTS=OFF >/dev/null
if [ $# -eq 0 ]; then
  set -- $(for source in tests/fuzz/*_fuzz.cpp; do basename "$source" _fuzz.cpp; done)
fi
cmake --build build-fuzz --target $(printf '%s_fuzz ' "$@") >build-fuzz/build.log || { tail -n 40 build-fuzz/build.log; exit 1; }
# The code that a target is for.
code_of() {
  case $1 in
    blocks) ls src/format/decode*.cpp src/format/decode*.h ;;
    gbnf | json_schema) echo src/grammar ;;
    gguf) echo src/format/gguf.cpp ;;
    hf_config) ls src/import/{family,family_config,family_layers,config_reader}.cpp ;;
    manifest) ls src/format/rdrr_{manifest,slots}.cpp && echo src/model ;;
    safetensors) echo src/format/safetensors.cpp ;;
    template) echo src/jinja ;;
    token_file) echo src/cli/token_file.cpp ;;
    tokenizer) echo src/tokenizer ;;
  esac
}
findings=0
for target in "$@"; do
  seeds=tests/fuzz/${target}_seeds kept=tests/fuzz/corpus/$target.tar.gz corpus=build-fuzz/corpus/$target
  program=build-fuzz/${target}_fuzz
  log=build-fuzz/$target.log
  mkdir -p "$corpus"
  [ ! -f "$kept" ] || tar xzf "$kept" -C "$corpus"
  case $target in  # bytes of an input; interpreters and grammars have budgets of their own, which longer ones only meet
    blocks | hf_config | token_file) longest=65536 ;;
    *) longest=6000 ;;
  esac
  limits=(-timeout=25 -rss_limit_mb=2048 "-max_len=$longest" -artifact_prefix=build-fuzz/)
  [ ! -f "tests/fuzz/$target.dict" ] || limits+=("-dict=tests/fuzz/$target.dict")
  folders=("$corpus")
  [ ! -d "$seeds" ] || folders+=("$seeds")
  echo "fuzzing $target for $seconds s"
  if ! LLVM_PROFILE_FILE=/dev/null "$program" "-max_total_time=$seconds" -print_final_stats=1 "${limits[@]}" "${folders[@]}" >"$log" 2>&1; then
    tail -n 60 "$log"
    echo "$target: a finding; the whole log is $log"
    findings=$((findings + 1))
    continue
  fi
  sed -n 's/^stat::number_of_executed_units: *\([0-9]*\)/  no finding in \1 inputs/p' "$log"
  # The corpus once more, for what it reaches.
  LLVM_PROFILE_FILE=build-fuzz/$target.profraw "$program" -runs=0 "${limits[@]}" "${folders[@]}" >>"$log" 2>&1
  llvm-profdata-22 merge -sparse "build-fuzz/$target.profraw" -o "build-fuzz/$target.profdata"
  llvm-cov-22 report "$program" "-instr-profile=build-fuzz/$target.profdata" \
    $(code_of "$target") 2>>"$log" >"build-fuzz/$target.coverage"
  awk '$1 == "TOTAL" {printf "  %d of %d regions reached (%s)\n", $2 - $3, $2, $4}' "build-fuzz/$target.coverage"
  if [ -n "${KEEP:-}" ]; then
    rm -rf "build-fuzz/smaller"
    mkdir "build-fuzz/smaller"
    LLVM_PROFILE_FILE=/dev/null "$program" -merge=1 "${limits[@]}" build-fuzz/smaller "${folders[@]}" >>"$log" 2>&1
    find build-fuzz/smaller -type f -size +16k -delete  # large ones are slow, and say little more
    mkdir -p tests/fuzz/corpus
    tar c -C build-fuzz/smaller --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner . | gzip -9n >"$kept"
    echo "  kept $(find build-fuzz/smaller -type f | wc -l) inputs, $(stat -c %s "$kept") bytes"
  fi
done
exit $((findings > 0))
