#!/usr/bin/env python3
"""docs/cli.md, made of what the program says of itself.

    tools/cli_docs.py build/doppler            writes docs/cli.md
    tools/cli_docs.py build/doppler --check    exits 1 where docs/cli.md says something else
"""
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "cli.md"
INTRODUCTION = """# The command line

Made by `tools/cli_docs.py` from `doppler --help`. Any verb takes `--config FILE|JSON|PRESET`; `doppler config --show VERB`
tells every option's value and where it came from. Exit codes: 0 done, 1 checked and found faulty, 2 a wrong argument, 3 a
file, 4 bytes that do not mean what they should, 5 something unsupported, 6 memory, 7 the device, 70 a bug.
"""


def help_of(program, verb):
    return subprocess.run([program, *verb, "--help"], check=True, capture_output=True, text=True).stdout


def verbs_of(text):
    section = re.search(r"\nSubcommands:\n((?:  .*\n)+)", text)
    return re.findall(r"^  ([a-z][a-z-]*) ", section.group(1), re.M) if section else []


def chapters(program, verb=()):
    text = help_of(program, verb)
    verbs = verbs_of(text)
    if verb and (not verbs or "\nPositionals:\n" in text):
        yield f"## doppler {' '.join(verb)}\n\n```\n{text.rstrip()}\n```\n"
    elif not verb:
        yield f"```\n{text.rstrip()}\n```\n"
    for name in verbs:
        yield from chapters(program, (*verb, name))


def main():
    page = "\n".join([INTRODUCTION, *chapters(sys.argv[1])])
    if "--check" not in sys.argv:
        PAGE.write_text(page)
    elif PAGE.read_text() != page:
        sys.exit(f"{PAGE} is not what the program says. Make it anew: tools/cli_docs.py {sys.argv[1]}")


main()
