#!/bin/sh
# Looks at what was linked with cmake/harden.cmake:  tools/check_hardening.sh FILE…   (programs and shared libraries)
# Prints what a file lacks and exits 1.
status=0
lacks() {
  printf '%s lacks %s\n' "$1" "$2"
  status=1
}
for file in "$@"; do
  segments=$(readelf --wide --program-headers "$file") dynamic=$(readelf --wide --dynamic "$file")
  readelf --file-header "$file" | grep -q 'Type: *DYN' || lacks "$file" "a place of the loader's choosing (PIE)"
  printf '%s\n' "$segments" | grep -q GNU_RELRO || lacks "$file" "RELRO"
  printf '%s\n' "$dynamic" | grep -Eq 'BIND_NOW|\(FLAGS_1\).*NOW' || lacks "$file" "binding before it runs (full RELRO)"
  printf '%s\n' "$segments" | grep GNU_STACK | grep -q 'RW ' || lacks "$file" "a stack that is not executable"
  printf '%s\n' "$segments" | grep LOAD | grep -q RWE && lacks "$file" "memory that is either written or executed"
done
exit $status
