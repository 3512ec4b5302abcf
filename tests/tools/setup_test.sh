#!/bin/sh
# tools/setup.sh where things are too old, forged or missing: stand-ins for the tools it asks come first in PATH.
set -u
setup=$(cd "$(dirname "$0")/../.." && pwd)/tools/setup.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/build"
failures=0
stand_in() { printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1" && chmod +x "$work/bin/$1"; }
try() { PATH=$work/bin:$PATH "$setup" "$1" "$work/build" >"$work/said" 2>&1; status=$?; }
expect() { # expect WHAT STATUS WORDS
  if [ $status -ne "$2" ] || ! grep -qF -e "$3" "$work/said"; then
    printf '%s: expected status %s and "%s", got status %s and:\n' "$1" "$2" "$3" $status
    sed 's/^/  | /' "$work/said"
    failures=$((failures + 1))
  fi
}

stand_in npm 'mkdir package && echo forged >package/libwebgpu_wrapper.so && tar czf forged.tgz package && echo forged.tgz'
try dawn
expect "a package with other bytes" 1 "is not the package that is pinned in tools/setup.sh: expected SHA-512 5043fb519744871f68b6f9"
if [ -e "$work/build/dawn" ] || ls "$work/build" | grep -q fetch; then
  echo "a forged package left something behind"
  failures=$((failures + 1))
fi

stand_in npm 'echo "no such host" >&2; exit 1'
try dawn
expect "no network" 1 "no such host"
for tool in g++ cmake ninja pkg-config ldconfig; do stand_in $tool 'echo 99.9'; done
try run
expect "no network, but a CPU" 0 "this build has no WebGPU library and runs on the CPU"

stand_in id 'echo 1000'
stand_in cmake 'echo "cmake version 3.9.12"'  # older than 3.25, though its text sorts behind
try run
expect "too old, and not root" 1 'sudo sh -c "apt-get update && apt-get install -y --no-install-recommends cmake'
[ $failures -eq 0 ]
