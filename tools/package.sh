#!/bin/bash
# The .deb in an empty Debian:  tools/package.sh BUILD [SUITE]   (default: bookworm; needs root)
# Packs what BUILD holds with CPack, makes a root with debootstrap and nothing else, installs the package there with apt-get,
# and lets the program and, from Python, the library answer as an ordinary user. Everything happens in ROOT (default:
# /var/tmp/doppler-package), which is removed when all is well.
set -euo pipefail
tree=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
suite=${2:-bookworm}
work=${ROOT:-/var/tmp/doppler-package}
root=$work/root
if [ "$(id -u)" -ne 0 ]; then
  echo "tools/package.sh makes a root of its own (debootstrap, chroot), so it needs to be root itself" >&2
  exit 1
fi
# Mounts and processes of a run end with it.
if [ -z "${DOPPLER_PACKAGE_INSIDE:-}" ]; then
  "$tree/tools/setup.sh" bare
  DOPPLER_PACKAGE_INSIDE=1 exec unshare --mount --propagation private --pid --mount-proc --fork --kill-child "$0" "$@"
fi
failures=0
check() {  # check WHAT CONDITION…
  local what=$1
  shift
  if "$@"; then
    echo "  ok    $what"
  else
    echo "  WRONG $what"
    failures=$((failures + 1))
  fi
}
in_root() {  # in_root USER COMMAND
  local way=() name
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    [ -z "${!name:-}" ] || way+=("$name=${!name}")
  done
  chroot --userspec="$1:$1" "$root" /usr/bin/env -i HOME=/tmp LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${way[@]}" bash -c "cd /tmp && $2" </dev/null
}
archive() { apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' | awk -v release="$1" '$2 == release {print $1; exit}'; }

rm -rf "$work"
mkdir -p "$work/packages"
echo "Packing"
(cd "$build" && cpack --config CPackConfig.cmake -B "$work/packages" >"$work/cpack.log" 2>&1) || { tail -n 20 "$work/cpack.log"; exit 1; }
deb=$(ls "$work"/packages/*.deb)
tarball=$(ls "$work"/packages/*.tar.gz)
echo "$(basename "$deb"): $(stat -c %s "$deb") bytes; $(basename "$tarball"): $(stat -c %s "$tarball") bytes"
dpkg-deb --field "$deb" Depends Recommends
dpkg-deb --contents "$deb" >"$work/contents"
for path in ./usr/bin/doppler /libdoppler.so ./usr/include/doppler/doppler.h ./usr/include/doppler/doppler_c.h \
  /doppler-config.cmake /doppler.pc ./usr/lib/doppler/libwebgpu_wrapper.so ./usr/share/doppler/families/common.json \
  /man1/doppler.1 /completions/doppler /_doppler /doppler.fish ./usr/share/doppler/models/tiny/manifest.json; do
  check "$path is in the package" grep -qF -- "$path" "$work/contents"
done
here=$(. /etc/os-release && echo "$VERSION_CODENAME")
echo "Making an empty $suite in $root"
debootstrap --variant=minbase "$suite" "$root" "$(archive "$here")" >"$work/debootstrap.log" 2>&1 || { tail -n 5 "$work/debootstrap.log"; exit 1; }
cp /etc/resolv.conf "$root/etc/resolv.conf"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
cp "$deb" "$root/tmp/doppler.deb"
cp "$tree"/examples/python/*.py "$root/tmp"
echo "Installing the package with apt-get"
in_root root 'useradd person && apt-get update && apt-get install -y --no-install-recommends ./doppler.deb python3-minimal libpython3-stdlib' \
  >"$work/install.log" 2>&1 || { tail -n 20 "$work/install.log"; exit 1; }
answer="The color of the sky is blue."
check "the program answers" [ "$(in_root person 'doppler run "What color is the sky?"' 2>"$work/run.err")" = "$answer" ]
check "and says what runs: $(grep '^\[' "$work/run.err")" grep -q '^\[tiny on ' "$work/run.err"
check "it exports a GGUF" in_root person 'doppler convert /usr/share/doppler/models/tiny /tmp/tiny.gguf >/tmp/convert.log 2>&1'
check "which the library answers from, in Python" \
  [ "$(in_root person 'python3 chat.py /tmp/tiny.gguf "What color is the sky?"' 2>"$work/python.err")" = "$answer" ]
check "every library is found" bash -c "! chroot '$root' sh -c 'ldd /usr/bin/doppler /usr/lib/*/libdoppler.so /usr/lib/libdoppler.so 2>/dev/null' | grep 'not found'"
check "it goes as it came" in_root root 'dpkg --purge doppler >/dev/null && ! test -e /usr/bin/doppler && ! test -e /usr/lib/doppler'
echo "$suite: $failures checks wrong"
[ $failures -eq 0 ] || { echo "logs: $work"; exit 1; }
umount -R "$root/proc" "$root/dev"
rm -rf "$work"
