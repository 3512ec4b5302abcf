#!/bin/sh
# Holds C++ to .clang-format, by the version that CONTRIBUTING.md names: others break lines elsewhere. Prints each place and
# exits 1; 77 where that version is not here.   tools/check_format.sh --fix   formats them instead.
cd "$(dirname "$0")/.." || exit 2
if ! command -v clang-format-14 >/dev/null; then
  printf 'clang-format: Skipped\nclang-format-14 is not here\n'
  exit 77
fi
# Two tables that are laid out otherwise: Unicode's, which is generated, and WebGPU's declarations.
find src include tests tools examples web \( -name node_modules -o -name dist \) -prune -o \
  \( -name '*.cpp' -o -name '*.h' \) -print | grep -vE 'unicode_tables\.cpp|webgpu_c\.h' | {
  if [ "${1:-}" = --fix ]; then xargs clang-format-14 -i; else xargs clang-format-14 --dry-run -Werror; fi
}
