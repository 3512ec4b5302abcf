#!/bin/sh
# Holds the arrows between the rooms of src/: a file may include headers of its own room and of the rooms listed
# here, and no other; inside src/gpu the folders have arrows too (gpu/wgsl is generated). Holds their size, too. Prints
# each offending line and exits 1.
cd "$(dirname "$0")/.." || exit 2
status=0
allow() {
  room=$1; shift
  pattern="$room"
  for r in "$@"; do pattern="$pattern|$r"; done
  bad=$(grep -rnE '#include "[a-z]+/' "src/$room" 2>/dev/null | grep -vE "#include \"($pattern)/")
  if [ -n "$bad" ]; then
    printf 'src/%s may include only: %s %s\n%s\n' "$room" "$room" "$*" "$bad"
    status=1
  fi
}
allow base
allow format base
allow tokenizer base
allow jinja base
allow grammar base tokenizer
allow model base format
allow import base format model tokenizer
allow convert base format model tokenizer import
allow hub base format import convert
allow ref base format model
allow cpu base format model
allow gpu base format model
allow gpu/webgpu gpu/wgsl base format model
allow gpu/ops gpu/wgsl gpu/webgpu base format model
allow gpu/run gpu/wgsl gpu/webgpu gpu/ops base format model
allow debug base format model
allow cluster base format model
allow engine base format model tokenizer jinja grammar import ref cpu gpu debug cluster
allow bench base format model tokenizer jinja grammar import debug engine
allow serve base format model tokenizer jinja grammar cluster engine
allow api base format model tokenizer jinja engine doppler
allow cli base format model tokenizer jinja grammar import convert hub engine bench debug serve gpu cpu/cases
families=$(grep -rniE 'gemma|gpt.?oss|llama|qwen' src --include='*.cpp' --include='*.h' --include='*.wgsl' 2>/dev/null |
  grep -vE '^src/(import|convert)/' | grep -viE "llama3|llama[.-]cpp|ollama|example|synth|expertFormat|chatTemplate")
if [ -n "$families" ]; then
  printf 'family names belong in families/, src/import and src/convert only:\n%s\n' "$families"
  status=1
fi
# Files of these folders are compiled together (DOPPLER_PRECOMPILE), so what one declares in its unnamed namespace no other
# may declare in its own.
for folder in src/*/ src/gpu/run src/gpu/webgpu tests/gpu/cases; do
  case $folder in src/cpu/) continue ;; esac
  set -- "$folder"/*.cpp
  [ -e "$1" ] || continue
  twice=$(awk '
    FNR == 1 { inside = 0 }
    /^namespace \{/ { inside = 1 }
    /^}  \/\/ namespace$/ { inside = 0 }
    inside && /^[A-Za-z]/ && !/^(template|using|namespace|static_assert)/ {
      name = $0
      if (sub(/^(struct|class|enum class|enum) /, "", name)) sub(/[^A-Za-z0-9_].*/, "", name)
      else { sub(/ *[({=\[;].*/, "", name); sub(/.*[ *&>]/, "", name) }
      if (name in file && file[name] != FILENAME) print FILENAME ": " name " is in " file[name] ", too"
      file[name] = FILENAME
    }' "$@")
  if [ -n "$twice" ]; then
    printf 'unnamed namespaces of a folder share no names:\n%s\n' "$twice"
    status=1
  fi
done
# Lines of C++ and WGSL that a room may have. A change that raises a number here says in its message what it buys.
budget() {
  lines=$(find "src/$1" -name '*.cpp' -o -name '*.h' -o -name '*.wgsl' | xargs cat | wc -l)
  if [ "$lines" -gt "$2" ]; then
    printf 'src/%s has %d lines, and its budget in tools/check_rooms.sh is %d\n' "$1" "$lines" "$2"
    status=1
  fi
}
budget base 3230
budget format 3590
budget tokenizer 3750
budget jinja 6900
budget grammar 3540
budget model 3555
budget import 4239
budget convert 2940
budget hub 2100
budget ref 644
budget cpu 8477
budget gpu 17097
budget debug 4495
budget cluster 2096
budget engine 4150
budget bench 2835
budget serve 5596
budget cli 7270
budget api 675
exit $status
