#!/bin/sh
# Installs the C and C++ libraries for WebAssembly into FOLDER and prints its path. They come from the npm package
# @yowasp/clang, of which only the libraries and headers are kept; the compiler is Debian's clang.
#
#   tools/fetch_wasi.sh [FOLDER]      (default: ~/.cache/doppler/wasi-VERSION, shared by all builds)
set -eu
version=22.0.0-git20542-10
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/doppler/wasi-$version}
if [ "$(cat "$folder/version" 2>/dev/null || true)" != "$version" ]; then
  command -v npm >/dev/null || { echo "fetch_wasi.sh: npm is needed to fetch the WebAssembly libraries" >&2; exit 1; }
  mkdir -p "$folder"
  work=$(mktemp -d "$folder.fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT INT TERM
  (cd "$work" && npm pack --silent --ignore-scripts "@yowasp/clang@$version" >/dev/null &&
    tar xzf ./*.tgz package/gen/llvm-resources.tar && mkdir root && tar xf package/gen/llvm-resources.tar -C root)
  rm -rf "${folder:?}"
  mkdir -p "$folder"
  mkdir "$folder/include"
  mv "$work/root/include/c++" "$work/root/include/wasm32-wasip1" "$folder/include"
  mv "$work/root/lib" "$folder"
  printf '%s' "$version" >"$folder/version"
fi
echo "$folder"
