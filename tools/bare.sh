#!/bin/bash
# README's commands, word for word, on an empty Debian:  tools/bare.sh [SUITE]   (default: bookworm; needs root)
# Makes a root with debootstrap, git and certificates and nothing else, clones this commit into it, takes the commands out
# of README's first code block and runs them as root, then again in a clone of an ordinary user. Checks what they print,
# that WebGPU answers (on SwiftShader, lent by this machine), and that ./run needs no network the second time. Prints
# minutes and downloaded bytes. Everything happens in BARE (default: /var/tmp/doppler-bare-SUITE), which is removed when
# all is well; the logs are in BARE/logs until then.
set -euo pipefail
suite=${1:-bookworm}
tree=$(cd "$(dirname "$0")/.." && pwd)
bare=${BARE:-/var/tmp/doppler-bare-$suite}
if [ "$(id -u)" -ne 0 ]; then
  echo "tools/bare.sh makes a root of its own (debootstrap, chroot), so it needs to be root itself" >&2
  exit 1
fi
# Mounts and processes of a run end with it.
if [ -z "${DOPPLER_BARE_INSIDE:-}" ]; then
  "$tree/tools/setup.sh" bare
  DOPPLER_BARE_INSIDE=1 exec unshare --mount --propagation private --pid --mount-proc --fork --kill-child "$0" "$@"
fi
root=$bare/root
logs=$bare/logs
failures=0

say() { printf '%s\n' "$*"; }
check() {  # check WHAT CONDITION…
  local what=$1
  shift
  if "$@"; then
    say "  ok    $what"
  else
    say "  WRONG $what"
    failures=$((failures + 1))
  fi
}
# in_root USER COMMAND: a login of that user in the root, with this machine's way to the network and nothing else of it.
in_root() {
  local user=$1 home=/root
  [ "$user" = root ] || home=/home/$user
  local way=()
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY NODE_EXTRA_CA_CERTS; do
    [ -z "${!name:-}" ] || way+=("$name=${!name}")
  done
  chroot --userspec="$user:$user" "$root" /usr/bin/env -i "HOME=$home" USER="$user" LANG=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${way[@]}" bash -c "$2" </dev/null
}
# The archives this machine installs from, for SUITE: the main one, its updates, and security.
archive() { apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' | awk -v release="$1" '$2 == release {print $1; exit}'; }
# What apt-get and npm fetched for USER's clone, in MB.
apt_megabytes() { awk '/^Fetched /{gsub(",", "", $2); sum += $3 == "kB" ? $2 / 1000 : $2} END {printf "%.0f", sum}' "$root$1/doppler/build/setup.log"; }
npm_megabytes() { du -sB1000000 --apparent-size "$root$1/.npm/_cacache" | cut -f 1; }

make_root() {
  local here main security
  here=$(. /etc/os-release && echo "$VERSION_CODENAME")
  main=$(archive "$here")
  security=$(archive "$here-security")
  rm -rf "$bare"
  mkdir -p "$logs"
  say "Making an empty $suite in $root"
  debootstrap --variant=minbase --include=git,ca-certificates "$suite" "$root" "$main" >"$logs/debootstrap" 2>&1 ||
    { tail -n 5 "$logs/debootstrap"; exit 1; }
  # As Debian's installer writes it.
  printf 'deb %s %s main\n' "$main" "$suite" "$main" "$suite-updates" "$security" "$suite-security" >"$root/etc/apt/sources.list"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  cp /usr/local/share/ca-certificates/* "$root/usr/local/share/ca-certificates" 2>/dev/null || true
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount --rbind /sys "$root/sys"
  in_root root 'update-ca-certificates && useradd --create-home person' >"$logs/prepare" 2>&1
  # Software Vulkan, for the moment before the tests' own Chromium is there.
  mkdir -p "$root/opt/swiftshader"
  cp /usr/lib/chromium/vk_swiftshader_icd.json /usr/lib/chromium/libvk_swiftshader.so "$root/opt/swiftshader"
  git -C "$tree" bundle create -q "$root/opt/doppler.bundle" HEAD  # whoever reads it
}

# README's first code block without its comments.
commands() { awk '/^```/{n++; next} n == 1' "$tree/README.md" | sed 's/  *#.*//'; }

# speaks LOG: the command's standard output is text of some length.
speaks() { [ "$(wc -w <"$1")" -ge 20 ]; }
# The page answers within a minute of being built.
page_answers() {
  for _ in $(seq 1800); do
    if (exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET / HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3 && grep -qi '<title>' <&3) 2>/dev/null; then
      return 0
    fi
    kill -0 "$1" 2>/dev/null || return 1
    sleep 1
  done
  return 1
}

# walk USER: README as that user, in a clone of their own.
walk() {
  local user=$1 home=/root n=0 start cd
  [ "$user" = root ] || home=/home/$user
  in_root "$user" "git -c advice.detachedHead=false clone -q /opt/doppler.bundle $home/doppler"
  cd="cd $home/doppler &&"
  while IFS= read -r command; do
    [ -n "$command" ] || continue
    n=$((n + 1))
    local out=$logs/$user-$n.out err=$logs/$user-$n.err status=0
    start=$(date +%s)
    say "$user: $command"
    if [[ $command == *--web* ]]; then
      in_root "$user" "$cd exec $command" >"$out" 2>"$err" &
      local server=$!
      check "the page answers" page_answers $server
      pkill -f web/tools/serve.mjs || true
      wait $server 2>/dev/null || true
    else
      in_root "$user" "$cd $command" >"$out" 2>"$err" || status=$?
      check "ends well (log: $err)" [ $status -eq 0 ]
    fi
    say "  $(($(date +%s) - start)) s; downloaded so far: $(apt_megabytes "$home") MB by apt, $(npm_megabytes "$home") MB by npm"
    case $command in
      ./run\ --web*) ;;
      ./run*)
        check "tells a story" speaks "$out"
        check "says which backend runs" grep -q '^\[tiny on ' "$err"
        check "needs at most 12 lines for that: $(wc -l <"$err")" [ "$(wc -l <"$err")" -le 12 ]
        check "the WebGPU library is there" [ -s "$root$home/doppler/build/dawn/libwebgpu_wrapper.so" ]
        in_root "$user" "$cd VK_ICD_FILENAMES=/opt/swiftshader/vk_swiftshader_icd.json build/doppler run --backend webgpu 'Tell me a story.'" \
          >"$logs/$user-webgpu.out" 2>"$logs/$user-webgpu.err" || true
        check "WebGPU answers through the Vulkan loader" grep -q '^\[tiny on webgpu: SwiftShader' "$logs/$user-webgpu.err"
        check "tells a story on WebGPU" speaks "$logs/$user-webgpu.out"
        local first
        start=$(date +%s%N)
        IFS= read -r -N 1 first < <(unshare --net "$0" --again "$user" "$home" "$root" 2>/dev/null) || first=
        local ms=$((($(date +%s%N) - start) / 1000000))
        check "again without network: speaks after $ms ms" [ -n "$first" -a $ms -lt 2000 ]
        ;;
      ./test*) tail -n 12 "$out" | sed 's/^/  | /' ;;
    esac
  done < <(commands)
}

if [ "$suite" = --again ]; then
  root=$4
  in_root "$2" "cd $3/doppler && ./run 'Tell me a story.'"
  exit
fi
begin=$(date +%s)
make_root
say "person, before anything is installed: ./run"
in_root person 'git -c advice.detachedHead=false clone -q /opt/doppler.bundle ~/asked && cd ~/asked && ./run hello' >"$logs/asked.out" 2>"$logs/asked.err" && status=0 || status=$?
check "refuses with one command for an administrator" grep -q '^  sudo sh -c "apt-get update && apt-get install .*"$' "$logs/asked.err"
check "with status 1" [ $status -eq 1 ]
walk root
asked=$(sed -n 's/^  sudo sh -c "\(.*\)"$/\1/p' "$logs/asked.err")
check "the administrator's command installs nothing that root's ./run did not" \
  bash -c "chroot '$root' sh -c '${asked/-y/-s}' 2>/dev/null | grep -q ' 0 newly installed'"
walk person
say "$suite: $failures checks wrong, $((($(date +%s) - begin) / 60)) minutes in all"
[ $failures -eq 0 ] || { say "logs: $logs"; exit 1; }
umount -R "$root/proc" "$root/dev" "$root/sys"
rm -rf "$bare"
