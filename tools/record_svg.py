#!/usr/bin/env python3
"""Records a command as a moving picture of a terminal, for the README.

    tools/record_svg.py docs/run.svg 50 build/doppler run "Tell me a story about a brave cat." --max-tokens 120

What the command prints appears when it printed it, fifty times slower (the second argument), and the picture says so.
Viewers that do not move pictures show all of it.
"""
import html
import os
import pty
import re
import shlex
import sys
import time

COLUMNS, CHARACTER, LINE = 96, 8.0, 19


def record(command):
    """Pieces of what the command printed on a terminal: (seconds since its start, text)."""
    pieces = []
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], command)
    start = time.monotonic()
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:
            break
        if not data:
            break
        pieces.append((time.monotonic() - start, data.decode(errors="replace").replace("\r\n", "\n")))
    os.waitpid(child, 0)
    return pieces


def lay_out(pieces):
    """(seconds, line, column, text, dim) of every piece, wrapped between words at COLUMNS."""
    line = column = 0
    dim = False
    for seconds, text in pieces:
        for part in re.findall(r"\033\[[0-9;]*m|\n| *[^\s\033]+| +", text):
            if part.startswith("\033"):
                dim = part == "\033[2m"
            elif part == "\n":
                line, column = line + 1, 0
            else:
                if column + len(part) > COLUMNS:
                    line, column, part = line + 1, 0, part.lstrip()
                yield seconds, line, column, part, dim
                column += len(part)


def main():
    target, slower, command = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    placed = list(lay_out(record(command)))
    last = max(line for _, line, _, _, _ in placed)
    width, height = COLUMNS * CHARACTER + 32, (last + 2) * LINE + 58
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
           'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13.3">',
           '<rect width="100%" height="100%" rx="8" fill="#16181d"/>']
    out += [f'<circle cx="{18 + 18 * i}" cy="16" r="5" fill="{c}"/>' for i, c in enumerate(("#ec6a5e", "#f4bf4f", "#61c554"))]

    def text(line, column, colour, words, seconds=0.0):
        hidden = f'<set attributeName="opacity" to="0" begin="0s" dur="{seconds:.2f}s"/>' if seconds > 0 else ""
        out.append(f'<text x="{16 + column * CHARACTER:.1f}" y="{46 + line * LINE}" fill="{colour}" xml:space="preserve">'
                   f"{html.escape(words)}{hidden}</text>")

    text(0, 0, "#7fd1b9", "$ " + re.sub(r"^build/", "", shlex.join(command)).replace("'", '"'))
    for seconds, line, column, words, dim in placed:
        text(line + 1, column, "#8b93a1" if dim else "#e6e6e6", words, seconds * slower)
    text(last + 2, COLUMNS - 26, "#5b6270", f"{slower:.0f} times slower than it is")
    out.append("</svg>")
    with open(target, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


main()
