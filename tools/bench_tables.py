#!/usr/bin/env python3
"""The table of measured runs in docs/benchmarks.md, made of bench/results/*.json (doppler bench inference --output).

    tools/bench_tables.py            writes it between its two marks
    tools/bench_tables.py --check    exits 1 where the page says something else
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- made by tools/bench_tables.py -->", "<!-- end -->"


def row(result):
    environment, work = result["environment"], result["workload"]
    machine = environment["gpu"]["name"] if result["backend"] == "webgpu" else environment["cpu"]
    spread = lambda figure: f"{figure['median']:,.0f} ({min(figure['runs']):,.0f} to {max(figure['runs']):,.0f})"
    share = result["bandwidth"]["share"]
    return [result["model"]["id"], f"{machine}, {result['backend']}", f"{result['model']['bytes'] / 1e9:.2f} GB",
            f"{work['prompt_tokens']} + {work['tokens']}", spread(result["prefill_tok_s"]), spread(result["decode_tok_s"]),
            f"{result['first_token_ms']['median']:.1f} ms", f"{100 * share:.0f} %" if share else "",
            f"{result['memory']['peak_host_bytes'] / 2**20:.0f} MiB", environment["time"][:10]]


def table():
    results = [json.loads(path.read_text()) for path in (ROOT / "bench" / "results").glob("*.json")]
    results.sort(key=lambda r: (r["backend"], r["model"]["bytes"]))
    head = ["model", "machine, backend", "weights", "prompt + tokens", "prefill, tok/s", "decode, tok/s", "first token",
            "of the memory's speed", "host memory", "measured"]
    lines = [head, ["---"] * len(head)] + [row(r) for r in results]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main():
    page = PAGE.read_text()
    made = re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n{table()}\n{END}", page, flags=re.S)
    if "--check" not in sys.argv:
        PAGE.write_text(made)
    elif made != page:
        sys.exit(f"{PAGE} is not what bench/results says. Make it anew: tools/bench_tables.py")


main()
