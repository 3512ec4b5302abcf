#!/usr/bin/env python3
"""The man page and the completions of bash, zsh and fish, made of what the program says of itself.

    tools/shell_files.py build/doppler            writes packaging/doppler.1 and packaging/completions
    tools/shell_files.py build/doppler --check    exits 1 where they say something else
"""
import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "packaging"


class Verb:
    """What --help tells: `options` are (name, argument, about); `words` are those an option's value must be one of."""

    def __init__(self, program, path=()):
        self.path = path
        self.text = subprocess.run([program, *path, "--help"], check=True, capture_output=True, text=True).stdout
        self.about = self.text.splitlines()[0]
        section = re.search(r"\nSubcommands:\n((?:  .*\n)+)", self.text)
        names = re.findall(r"^  ([a-z][a-z-]*) ", section.group(1), re.M) if section else []
        self.verbs = [Verb(program, (*path, name)) for name in names]
        section = re.search(r"\nOptions:\n((?: .*\n)+)", self.text)
        lines = re.sub(r"\n {20,}", "  ", section.group(1)) if section else ""
        self.takes = "\nPositionals:\n" in self.text  # arguments of its own, beside its verbs
        self.options = []
        for line in lines.splitlines():
            names, argument, about = re.match(r"  (-\S+)(?: (\S.*?))?  +(\S.*)$", line).groups()
            self.options.append((names.split(",")[-1], argument or "", about))

    def all(self):
        yield self
        for verb in self.verbs:
            yield from verb.all()


def values(argument):
    """The words that a value must be one of: TEXT:{auto,ngram,off}=auto"""
    words = re.search(r"\{([^}]*)\}", argument)
    return words.group(1).split(",") if words else []


def man_text(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def man_page(root, version):
    out = [f'.TH DOPPLER 1 "" "doppler {version}" "User Commands"', ".SH NAME",
           "doppler \\- runs language models on the machine you have", ".SH SYNOPSIS", ".B doppler",
           "VERB [\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]", ".SH DESCRIPTION",
           "A model is an RDRR folder, a GGUF file (any part of a split one) or a Hugging Face folder.",
           "Every verb takes the options of the program, too."]
    for verb in root.all():
        if verb.verbs and verb.path and not verb.takes:
            continue
        out.append(f'.SH "{" ".join(("doppler", *verb.path)).upper()}"')
        out += [man_text(verb.about)] if verb.path else []
        for name, argument, about in verb.options:
            out += [".TP", f"\\fB{man_text(name)}\\fR" + (f" \\fI{man_text(argument)}\\fR" if argument else ""), man_text(about)]
        tail = verb.text.split("\nOptions:\n")[-1].partition("\n\n")[2].rstrip()
        if tail and verb.path:
            out += [".PP", ".nf", man_text(tail), ".fi"]
    out += [".SH EXIT STATUS", "0 done, 1 checked and found faulty, 2 a wrong argument, 3 a file, 4 bytes that do not mean "
            "what they should, 5 something unsupported, 6 memory, 7 the device, 70 a bug.",
            ".SH FILES", "PREFIX/share/doppler/models/tiny", ".br", "the model that runs where none is named"]
    return "\n".join(out) + "\n"


def bash(root):
    cases = []
    for verb in root.all():
        words = [v.path[-1] for v in verb.verbs] + sorted({name for name, _, _ in (*verb.options, *root.options)})
        cases.append(f'    "{" ".join(verb.path)}") words="{" ".join(words)}" ;;')
    choices = {}
    for verb in root.all():
        for name, argument, _ in verb.options:
            if values(argument):
                choices[name] = " ".join(values(argument))
    given = [f'    {name}) COMPREPLY=($(compgen -W "{words}" -- "$current")); return ;;' for name, words in sorted(choices.items())]
    return "\n".join([
        "# bash completion of doppler, made by tools/shell_files.py", "_doppler() {",
        '  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} path="" words="" word',
        '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do', f'    case "$path $word" in',
        "      " + " | ".join(sorted(f'"{" ".join(("", *v.path)) if len(v.path) == 1 else " ".join(v.path)}"'
                                     for v in root.all() if v.path)) + ') path=${path:+$path }$word ;;',
        "    esac", "  done", '  case "$previous" in', *given, "  esac", '  case "$path" in', *cases, "  esac",
        '  if [[ $current == -* || -z $path ]]; then', '    COMPREPLY=($(compgen -W "$words" -- "$current"))', "  else",
        '    COMPREPLY=($(compgen -W "${words%%--*}" -- "$current") $(compgen -f -- "$current"))',
        "    compopt -o filenames 2>/dev/null", "  fi", "}", "complete -F _doppler doppler", ""])


def zsh_quoted(text):
    return re.sub(r"([\[\]:])", r"\\\1", text).replace("'", "'\\''")


def zsh(root):
    out = ["#compdef doppler", "# made by tools/shell_files.py", ""]
    for verb in reversed(list(root.all())):
        name = "_".join(("_doppler", *(part.replace("-", "_") for part in verb.path)))
        out.append(f"{name}() {{")
        out += ["  local context state line", "  local -a verbs"] if verb.verbs else []
        out.append("  _arguments \\")
        for option, argument, about in verb.options:
            words = values(argument)
            value = "" if not argument else ":value:(" + " ".join(words) + ")" if words else ":value:_files"
            out.append(f"    '{option}[{zsh_quoted(about)}]{value}' \\")
        if verb.verbs:
            out += ["    '1: :->verb' '*:: :->rest'", '  case $state in', "    verb)", "      verbs=("]
            out += [f"        '{v.path[-1]}:{zsh_quoted(v.about)}'" for v in verb.verbs]
            out += ["      )", f"      _describe verb verbs{'; _files' if verb.takes else ''} ;;", "    rest)", "      case $line[1] in"]
            out += [f"        {v.path[-1]}) {'_'.join(('_doppler', *(p.replace('-', '_') for p in v.path)))} ;;" for v in verb.verbs]
            out += ["        *) _files ;;"] if verb.takes else []
            out += ["      esac ;;", "  esac"]
        else:
            out.append("    '*: :_files'")
        out += ["}", ""]
    return "\n".join([*out, '_doppler "$@"', ""])


def fish(root):
    quoted = lambda text: "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    out = ["# fish completion of doppler, made by tools/shell_files.py"]
    for verb in root.all():
        seen = " and ".join(f"__fish_seen_subcommand_from {name}" for name in verb.path)
        inner = " ".join(v.path[-1] for v in verb.verbs)
        first = " and ".join(filter(None, [seen, f"not __fish_seen_subcommand_from {inner}"])).replace(" and ", "; and ")
        for v in verb.verbs:
            out.append(f"complete -c doppler {'-f ' if not verb.path else ''}-n {quoted(first)} -a {v.path[-1]} -d {quoted(v.about)}")
        for name, argument, about in verb.options:
            condition = f" -n {quoted(seen.replace(' and ', '; and '))}" if seen else ""
            value = "" if not argument else f" -x -a {quoted(' '.join(values(argument)))}" if values(argument) else " -r"
            short = f"-l {name[2:]}" if name.startswith("--") else f"-o {name[1:]}"
            out.append(f"complete -c doppler{condition} {short}{value} -d {quoted(about)}")
    return "\n".join(out) + "\n"


def main():
    program = sys.argv[1]
    root = Verb(program)
    version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.split()[-1]
    files = {"doppler.1": man_page(root, version), "completions/doppler.bash": bash(root), "completions/_doppler": zsh(root),
             "completions/doppler.fish": fish(root)}
    for name, text in files.items():
        path = FOLDER / name
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{path} is not what the program says. Make it anew: tools/shell_files.py {program}")


main()
