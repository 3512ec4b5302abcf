#!/usr/bin/env python3
"""Writes what a healthy model's values are, for families/health: the least and the most of the largest absolute values
of what layers put out and of the final norm, at every position but the first of prompts of many kinds.

    tools/record_health.py build/doppler MODEL [--backend cpu] > families/health/NAME.json
"""
import argparse
import json
import re
import subprocess

PROMPTS = [
    "The color of the sky is",
    "Once upon a time there was a little girl who",
    "2 + 2 = 4, 3 + 3 = 6, 4 + 4 =",
    "In the morning the cat went out into the garden, looked at the birds, and",
    "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq",
    "for (int i = 0; i < n; ++i) { sum += x[i] * w[i]; }  // {}",
    "Привет, мир! 你好，世界。 ¿Cómo estás?",
    "!!! ??? ... --- ### @@@ $$$ %%% 1234567890 3.14159",
    "the the the the the the the the of of of of of of of of",
]
MOST_TOKENS = 256
STAGE = re.compile(r"layer\d+\.out|final_norm")


def rounded(number):
    return float(f"{number:.4g}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--backend", default="cpu")
    arguments = parser.parse_args()
    runs = []
    positions = ",".join(str(position) for position in range(1, MOST_TOKENS))
    for prompt in PROMPTS:
        command = [arguments.program, "debug", arguments.model, "--backend", arguments.backend, "--prompt", prompt]
        command += ["--position", positions]
        runs.append(json.loads(subprocess.run(command + ["--json"], check=True, capture_output=True, text=True).stdout))
    ranges = {}
    for run in runs:
        for stage in run["stages"]:
            if STAGE.fullmatch(stage["name"]):
                least, most = ranges.get(stage["name"], (stage["max_abs"], stage["max_abs"]))
                ranges[stage["name"]] = (min(least, stage["max_abs"]), max(most, stage["max_abs"]))
    record = {
        "model": runs[0]["model"],
        "about": f"{len(PROMPTS)} prompts, every position but the first, on the {arguments.backend} backend; recorded by tools/record_health.py",
        "prompt": PROMPTS[0],
        "next": runs[0]["top"][0]["text"],
        "shape": runs[0]["shape"],
        "like": runs[0]["like"],
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in record.items()]
    stages = [f"    {json.dumps(name)}: [{rounded(least)}, {rounded(most)}]" for name, (least, most) in ranges.items()]
    lines.append('  "max_abs": {\n' + ",\n".join(stages) + "\n  }")
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
