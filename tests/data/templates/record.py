#!/usr/bin/env python3
"""Renders the templates of the *.json files beside this one with jinja2, set up as Hugging Face's transformers sets it
up for chat templates, and writes down what comes out: tests/data/templates/record.py

Each file is {"variables": {...}, "cases": [{"template": ..., "text": ...} or {"template": ..., "error": ...}]}. Add a
case with its template alone, run this, and look at the difference. The cases of refused.json
also have {"refused": ...}: what it is that jinja2 renders and Doppler refuses by this name.

Recorded with jinja2 3.1.6 and Python 3.11.
"""
import copy
import json
import pathlib
import warnings

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what a model has said; for rendering it is its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("say"), [], [], body).set_lineno(line)

    def say(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: "<" + form + ">"
    return env


def main():
    warnings.simplefilter("ignore")
    env = environment()
    for path in sorted(pathlib.Path(__file__).parent.glob("*.json")):
        data = json.loads(path.read_text())
        for case in data["cases"]:
            case.pop("text", None)
            case.pop("error", None)
            try:
                case["text"] = env.from_string(case["template"]).render(**copy.deepcopy(data["variables"]))
            except Exception as e:
                case["error"] = type(e).__name__ + ": " + str(e)
        cases = ",\n".join("  " + json.dumps(case, ensure_ascii=False) for case in data["cases"])
        variables = json.dumps(data["variables"], ensure_ascii=False)
        path.write_text('{\n "variables": ' + variables + ',\n "cases": [\n' + cases + "\n ]\n}\n")


if __name__ == "__main__":
    main()
