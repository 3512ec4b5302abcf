#!/usr/bin/env python3
"""Every call of the system that convert, load, pull and serve make fails once, by faults.cpp: each fault ends in the same
result as without it, or in a sentence and an exit code, and leaves every earlier file whole; then the same command works.

    tests/faults/faults_test.py build/doppler build/libfaults.so [--whole] [--kills N] [--table FILE] [SCENARIO ...]

Without --whole each site of convert, load and pull fails in one way, at its first call. With it: in every way that fits the
call, at its first, its middle and its last call, and killed there; and the wall clock jumps; and serve, too. Conversions and
downloads are killed at N random moments each. --table writes the sites and how they ended.
"""
import argparse
import collections
import concurrent.futures
import errno
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PATIENCE = 120  # seconds for anything to end, on a machine that has other things to do
REFUSALS = {3, 4, 5, 6}  # exit codes of a file, a format, what is not supported, memory
DAY = 86400

# What a call may say, the likeliest first.
ERRORS = {
    "open": ["EIO", "EMFILE", "EACCES", "EINTR"], "openat": ["EIO", "EMFILE"], "fopen": ["EIO", "EMFILE"],
    "opendir": ["EIO", "EMFILE"], "fdopendir": ["EIO"], "readdir": ["EIO"],
    "read": ["EIO", "EINTR", "short"], "pread": ["EIO", "EINTR", "short"], "readv": ["EIO"],
    "write": ["ENOSPC", "EIO", "EINTR", "short"], "pwrite": ["ENOSPC", "EIO", "EINTR", "short"],
    "writev": ["ENOSPC", "EIO"], "sendfile": ["ENOSPC", "EIO"],
    "fsync": ["EIO", "ENOSPC", "EINTR"], "ftruncate": ["EIO", "EINTR"],
    "stat": ["EIO", "EACCES"], "lstat": ["EIO", "EACCES"], "fstat": ["EIO"], "statvfs": ["EIO"],
    "readlink": ["EIO"], "realpath": ["EIO"], "getcwd": ["ENOENT"],
    "mkdir": ["ENOSPC", "EACCES"], "unlink": ["EIO", "EACCES"], "unlinkat": ["EIO"],
    "rename": ["EIO", "ENOSPC", "EXDEV"], "renameat2": ["EIO", "EINVAL"], "symlink": ["ENOSPC", "EPERM"],
    "flock": ["ENOLCK", "EINTR"], "fchmod": ["EPERM"], "close": ["EIO"],
    "mmap": ["ENOMEM", "ENODEV"], "munmap": ["ENOMEM"], "madvise": ["EINVAL"],
    "pthread_create": ["EAGAIN"],
    "socket": ["EMFILE"], "connect": ["ECONNREFUSED", "ETIMEDOUT"], "bind": ["EADDRINUSE", "EACCES"], "listen": ["EADDRINUSE"],
    "accept": ["ECONNABORTED", "EMFILE", "EINTR"], "accept4": ["ECONNABORTED", "EMFILE", "EINTR"],
    "setsockopt": ["ENOPROTOOPT"], "getsockname": ["ENOBUFS"],
    "send": ["ECONNRESET", "EPIPE", "EINTR", "short"], "sendmsg": ["ECONNRESET", "EPIPE", "EINTR"],
    "recv": ["ECONNRESET", "EINTR", "short"], "recvmsg": ["ECONNRESET", "EINTR"],
    "poll": ["EINTR", "ENOMEM"], "epoll_create1": ["EMFILE"], "epoll_ctl": ["ENOMEM"], "epoll_wait": ["EINTR"],
    "eventfd": ["EMFILE"], "timerfd_create": ["EMFILE"], "timerfd_settime": ["ECANCELED"], "getaddrinfo": ["EIO"],
}
PLAIN = {"open64": "open", "pread64": "pread", "pwrite64": "pwrite", "ftruncate64": "ftruncate", "stat64": "stat",
         "lstat64": "lstat", "fstat64": "fstat"}
# Interrupted, these are simply done again. (An open() may wait for somebody, so there Ctrl-C must end it.)
DONE_AGAIN = {"read", "pread", "write", "pwrite", "flock"}


DIGESTS = {}


def digest(path):
    if path.is_symlink():
        return "-> " + os.readlink(path)
    status = path.stat()
    key = status.st_ino, status.st_size, status.st_mtime_ns
    if key not in DIGESTS or time.time() - status.st_mtime < 5:  # files that come and go may have one number
        DIGESTS[key] = hashlib.sha256(path.read_bytes()).hexdigest()
    return DIGESTS[key]


def put(source, target):
    """The same file under another name: nothing that is tested writes into its sources."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


def tree(folder):
    return {str(path.relative_to(folder)): digest(path)
            for path in sorted(folder.rglob("*")) if path.is_symlink() or path.is_file()}


class Scenario:
    """A command, in a folder that is made anew for every run."""

    def __init__(self, name, group, words, inputs, target=None, serve=False, prepare=()):
        self.name, self.group, self.words, self.inputs = name, group, words, inputs
        self.target = target  # the name that the command writes, if it writes one
        self.serve, self.prepare = serve, prepare

    def folder(self, place):
        for name, source in self.inputs.items():
            if source.is_dir():
                shutil.copytree(source, place / name, copy_function=put)
            else:
                put(source, place / name)
        for words in self.prepare:
            subprocess.run([PROGRAM, *words], cwd=place, check=True, capture_output=True, timeout=PATIENCE)


class Outcome:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def sentence(self):
        return re.search(r"^doppler: \S.*", self.err, re.MULTILINE) is not None and "something went wrong" not in self.err


class Site:
    def __init__(self, call, frames, path):
        self.call, self.frames, self.path, self.calls = call, frames, path, 0


def environment(place, more):
    return {**os.environ, "HF_HUB_CACHE": str(place / "hub"), "DOPPLER_CACHE": str(place / "own"), "HOME": str(place),
            "HF_ENDPOINT": HUB or "", **more}


def ask(url):
    """One short greedy answer, or what stands in its way."""
    body = json.dumps({"prompt": "Once", "max_tokens": 4, "temperature": 0}).encode()
    try:
        with urllib.request.urlopen(f"{url}/v1/completions", body, timeout=PATIENCE) as reply:
            return json.load(reply)["choices"][0]["text"]
    except urllib.error.HTTPError as error:
        json.load(error)["error"]["message"]  # a refusal is a sentence, too
        return error
    except (OSError, json.JSONDecodeError, ConnectionError) as error:
        return error


def play(scenario, place, more):
    """Runs the scenario's command in its folder with these variables."""
    variables = environment(place, more)
    said = place.parent / (place.name + ".err")
    with open(said, "wb") as err:
        running = subprocess.Popen([PROGRAM, *scenario.words], cwd=place, env=variables, stdout=subprocess.PIPE, stderr=err)
    out = b""
    try:
        if scenario.serve:
            url = running.stdout.readline().decode().strip()
            answer = None
            for _ in range(3 if url else 0):  # whose request the fault meets is told so, or loses the connection
                answer = ask(url)
                if isinstance(answer, str):
                    break
            if url:
                running.send_signal(signal.SIGTERM)
            out = (answer if isinstance(answer, str) else repr(answer)).encode()
            running.stdout.read()
        else:
            out = running.stdout.read()
        code = running.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        code = "hangs"
    finally:
        running.kill()
        running.wait()
        running.stdout.close()
    err = said.read_text(errors="replace")
    said.unlink()
    out = re.sub(r"[\d.]+ (s|[kMG]?weights/s)\b", "TIME", out.decode(errors="replace"))
    return Outcome(code, out.replace(str(place), "PLACE"), err)


def read_log(path, keep_struck=False):
    sites, struck = collections.OrderedDict(), False
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        words = line.split(" ")
        if words[0] == "struck":
            struck = True
            words = words[1:]
        frames = []
        while len(frames) < 5 and len(words) > 3 and re.fullmatch("[0-9a-f]+", words[-1]):
            frames.insert(0, words.pop())
        call = PLAIN.get(words[1], words[1])
        site = sites.setdefault(words[0], Site(call, frames, " ".join(words[2:])))
        site.calls += 1
    return (sites, struck) if keep_struck else sites


def cut(path):
    """A file's name without what is another each time."""
    return re.sub(r"\.[0-9a-f]{16}\.", ".RANDOM.", path)


class Player:
    def __init__(self, scenario, root):
        self.scenario, self.root, self.count, self.lock = scenario, root, 0, threading.Lock()
        self.before = self.after = self.good = None

    def place(self):
        with self.lock:
            self.count += 1
            place = self.root / f"{self.scenario.name}-{self.count}"
        place.mkdir()
        self.scenario.folder(place)
        return place

    def undisturbed(self):
        """The sites of a run that nothing disturbs; it must be the same twice."""
        sites = {}
        for _ in range(2):
            place = self.place()
            self.before = self.files(place)
            log = self.root / (place.name + ".log")
            begun = time.time()
            good = play(self.scenario, place, {"LD_PRELOAD": str(FAULTS), "FAULTS_LOG": str(log)})
            if good.code != 0:
                raise SystemExit(f"{self.scenario.name} fails without a fault: {good.err}")
            self.seconds = time.time() - begun
            after = self.files(place)
            if self.good is not None and (self.good.out, self.after) != (good.out, after):
                raise SystemExit(f"{self.scenario.name} is not the same twice")
            self.good, self.after = good, after
            for key, site in read_log(log).items():
                sites.setdefault(key, site)
            shutil.rmtree(place)
        return sites

    @staticmethod
    def files(place):
        """What may not be broken: not what the program keeps for itself to be quicker, nor locks, which are empty."""
        return {name: hash for name, hash in tree(place).items()
                if name != "own/hashes" and not name.endswith(".lock") and ".cache/" not in name}

    def half_written(self, name):
        """Names that nobody takes for a model."""
        return any(part.startswith(".") for part in pathlib.PurePath(name).parts)

    def damage(self, place):
        """What a run that was disturbed has left that is neither as before nor as it should become."""
        now = self.files(place)
        for name in {**self.before, **now}:
            old, new, is_now = self.before.get(name), self.after.get(name), now.get(name)
            if is_now in (old, new) or self.half_written(name):
                continue
            if name.endswith(".incomplete"):
                whole = next((p for p in HUB_FILES if hashlib.sha256(p).hexdigest() in name or
                              hashlib.sha1(b"blob %d\0" % len(p) + p).hexdigest() in name), None)
                if whole is not None and whole.startswith((place / name).read_bytes()):
                    continue
            return f"{name} is neither what it was nor what it becomes"
        target = self.scenario.target
        if target:
            pick = lambda files: {n: h for n, h in files.items() if n == target or n.startswith(target + "/")}
            if pick(now) not in (pick(self.before), pick(self.after)):
                return f"{target} is a mixture: {sorted(pick(now))}"
        return None

    def disturbed(self, key, site, nth, way):
        """One fault. Returns (what it led to, what is wrong or None)."""
        place = self.place()
        log = self.root / (place.name + ".log")
        number = way if way in ("short", "kill") else str(getattr(errno, way))
        try:
            outcome = play(self.scenario, place, {"LD_PRELOAD": str(FAULTS), "FAULTS_LOG": str(log), "FAULTS_SITE": key,
                                                  "FAULTS_NTH": str(nth), "FAULTS_HOW": number})
            struck = read_log(log, keep_struck=True)[1]
            fault = self.judge(place, outcome, site.call, way) if struck else None
            if struck and fault is None and outcome.code != 0:
                fault = self.again(place, killed=way == "kill")
            kind = ("not met" if not struck else "killed" if outcome.code == -signal.SIGKILL else
                    "went on" if outcome.code == 0 else f"exit {outcome.code}")
            return kind, fault and f"{fault}\n    code {outcome.code}\n    " + (outcome.out + outcome.err)[-400:].replace("\n", "\n    ")
        finally:
            shutil.rmtree(place, ignore_errors=True)
            log.unlink(missing_ok=True)

    def killed(self, seconds):
        """Ends the command where it happens to be after so long. Returns whether it was still running, and what is wrong."""
        place = self.place()
        try:
            with subprocess.Popen([PROGRAM, *self.scenario.words], cwd=place, env=environment(place, {}),
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
                time.sleep(seconds)
                running.kill()
            fault = self.damage(place) or self.again(place, killed=True)
            return running.returncode == -signal.SIGKILL, fault and f"killed after {seconds:.3f} s: {fault}"
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def judge(self, place, outcome, call, way):
        if way == "kill":
            if self.scenario.serve:
                return None
            return self.damage(place) if outcome.code == -signal.SIGKILL else "it lives on"
        if outcome.code == 0:
            if outcome.out != self.good.out:
                return "exit 0, but it says something else"
            now = {n: h for n, h in self.files(place).items() if not self.half_written(n)}
            wanted = {n: h for n, h in self.after.items() if not self.half_written(n)}
            if now != wanted:
                return f"exit 0, but other files: {sorted(set(now.items()) ^ set(wanted.items()))[:4]}"
            return None
        if outcome.code == 1 and self.scenario.name == "verify" and " fault" in outcome.out:
            return None
        if outcome.code not in REFUSALS:
            return "it does not end as an error of a file does"
        if not outcome.sentence():
            return "it says no sentence"
        if way == "short" or way == "EINTR" and call in DONE_AGAIN:
            return "nothing is wrong, and it stops"
        return self.damage(place)

    def again(self, place, killed=False):
        """The same command must work where the fault is gone. Of a fault nothing may be left then; of a killed download what
        had a name that nobody looks for may."""
        target = self.scenario.target
        there = target and any(name == target or name.startswith(target + "/") for name in self.files(place))
        if there and "--force" not in self.scenario.words:
            return None  # the fault came behind the last step: the target is whole, as damage() has seen
        outcome = play(self.scenario, place, {})
        if outcome.code != 0 or outcome.out != self.good.out:
            return f"afterwards it does not work: {outcome.code} {outcome.out}{outcome.err}"
        now = self.files(place)
        if killed and not target:
            now = {name: hash for name, hash in now.items() if not self.half_written(name)}
        if now != self.after:
            return f"afterwards there are other files: {sorted(set(now.items()) ^ set(self.after.items()))[:4]}"
        return None


def source_lines(sites):
    """offset → the functions and the file there, innermost first."""
    offsets = sorted({frame for site in sites for frame in site.frames})
    # A frame is where the call returns to: the instruction before belongs to it.
    text = subprocess.run(["addr2line", "-a", "-i", "-f", "-C", "-s", "-e", PROGRAM],
                          input="\n".join(f"{int(o, 16) - 1:x}" for o in offsets), capture_output=True, text=True).stdout
    names, current = {}, None
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("0x"):
            current = names.setdefault(f"{int(line, 16) + 1:x}", [])
        else:
            name = re.sub(r"\(anonymous namespace\)::|doppler::|\[abi:\w+\]", "", line)
            current.append((re.sub(r"[(<{].*", "", name), next(lines).split(":")[0]))
    return names


def describe(site, names):
    """The innermost functions of ours: file: function ← its caller."""
    ours = [(function, file) for frame in site.frames for function, file in names.get(frame, [])
            if file in OUR_FILES and function and not function.startswith("std::")]
    if not ours:
        return "?", "?"
    return ours[0][1], " ← ".join(dict.fromkeys(function for function, _ in ours[:3]))


def local_hub(folder):
    """The hub of tests/hub with a GGUF file of noise and a small checkpoint in it."""
    gguf, checkpoint = folder / "repos/org/gguf", folder / "repos/org/checkpoint"
    gguf.mkdir(parents=True)
    noise = b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(9_000))
    (gguf / "m-Q4_K_M.gguf").write_bytes(b"GGUF" + noise)
    checkpoint.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(ROOT / "tests/data/models/granite-cut" / name, checkpoint)
    server = subprocess.Popen([sys.executable, ROOT / "tests/hub/hub_server.py", folder], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    port = server.stdout.readline().split()[0]
    return server, f"http://127.0.0.1:{port}", [p.read_bytes() for p in folder.glob("repos/org/*/*") if p.is_file()]


def scenarios(proto):
    checkpoint, tiny = ROOT / "tests/data/models/granite-cut", proto / "tiny"
    convert = ["convert", "--threads", "2", "--no-tokenizer"]
    run = ["run", "--backend", "cpu", "--threads", "2", "--max-tokens", "2", "--prompt-ids", "5,6,7", "--raw"]
    return [
        Scenario("convert-checkpoint", "convert", [*convert, "in", "out", "--shard-size", "64K"], {"in": checkpoint}, "out"),
        Scenario("convert-over", "convert", [*convert, "in", "out", "--force", "--quant", "q8_0"],
                 {"in": checkpoint, "out": proto / "old"}, "out"),
        Scenario("convert-to-gguf", "convert", ["convert", "--threads", "2", "in", "out.gguf"], {"in": tiny}, "out.gguf"),
        Scenario("convert-gguf", "convert", ["convert", "--threads", "2", "in.gguf", "out"], {"in.gguf": proto / "tiny.gguf"}, "out"),
        Scenario("load-artefact", "load", [*run, "in"], {"in": proto / "old"}),
        Scenario("load-tokenizer", "load", ["run", "--backend", "cpu", "--threads", "2", "--max-tokens", "2", "--temperature", "0",
                                             "in", "Hello"], {"in": tiny}),
        Scenario("load-gguf", "load", [*run, "in.gguf"], {"in.gguf": proto / "tiny.gguf"}),
        Scenario("load-checkpoint", "load", [*run, "in"], {"in": checkpoint}),
        Scenario("verify", "load", ["verify", "in"], {"in": proto / "old"}),
        Scenario("pull-gguf", "pull", ["pull", "hf:org/gguf", "--no-convert"], {}),
        Scenario("pull-checkpoint", "pull", ["pull", "hf:org/checkpoint", "--no-convert"], {}),
        Scenario("serve", "serve", ["serve", "tiny=in", "--port", "0", "--backend", "cpu", "--threads", "2", "--context", "64"],
                 {"in": tiny}, serve=True),
    ]


def faults_of(sites, whole):
    for key, site in sites.items():
        ways = ERRORS[site.call]
        if not whole:
            yield key, site, 1, ways[0]
            continue
        for nth in sorted({1, (site.calls + 1) // 2, site.calls}):
            for way in [*ways, "kill"]:
                yield key, site, nth, way


def main():
    global PROGRAM, FAULTS, HUB, HUB_FILES, OUR_FILES
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("faults", type=pathlib.Path)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--kills", type=int, default=int(os.environ.get("DOPPLER_TEST_KILLS", "6")))
    parser.add_argument("--table", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    a = parser.parse_intermixed_args()
    PROGRAM, FAULTS = a.program.resolve(), a.faults.resolve()
    OUR_FILES = {path.name for path in (ROOT / "src").rglob("*.cpp")} | {path.name for path in (ROOT / "src").rglob("*.h")}
    HUB, bad, rows, told = None, [], collections.OrderedDict(), time.time()
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        server, HUB, HUB_FILES = local_hub(root / "server")
        try:
            (root / "proto").mkdir()
            make = lambda *words: subprocess.run([PROGRAM, *words], cwd=root / "proto", check=True, capture_output=True)
            make("convert", ROOT / "tests/data/models/granite-cut", "old", "--quant", "f16", "--no-tokenizer")
            (root / "proto/old/README.md").write_text("somebody's notes\n")
            (root / "proto/old/more").mkdir()
            (root / "proto/old/more/notes.txt").write_text("more of them\n")
            shutil.copytree(ROOT / "models/tiny", root / "proto/tiny")
            make("convert", "tiny", "tiny.gguf")
            for scenario in scenarios(root / "proto"):
                if a.names and scenario.name not in a.names or scenario.serve and not (a.whole or a.names):
                    continue
                player = Player(scenario, root)
                sites = player.undisturbed()
                names = source_lines(sites.values())
                work = list(faults_of(sites, a.whole))
                kinds = collections.Counter()

                def one(item):
                    key, site, nth, way = item
                    for _ in range(8):  # threads and sockets come in another order each time
                        kind, fault = player.disturbed(key, site, nth, way)
                        if kind != "not met":
                            break
                    return item, kind, fault

                with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
                    for (key, site, nth, way), kind, fault in pool.map(one, work):
                        kinds[kind] += 1
                        file, where = describe(site, names)
                        row = rows.setdefault((scenario.group, file, where, site.call), collections.Counter())
                        row[kind] += 1
                        if fault:
                            bad.append(f"{scenario.name}: {site.call} fails ({way}, call {nth} of {site.calls}) on "
                                       f"{cut(site.path)} in {file}: {where}\n    {fault}")
                if a.whole:
                    for jump in (400 * DAY, -400 * DAY):
                        place = player.place()
                        outcome = play(scenario, place, {"LD_PRELOAD": str(FAULTS), "FAULTS_CLOCK": str(jump)})
                        kinds["clock"] += 1
                        if (outcome.code, outcome.out, player.files(place)) != (0, player.good.out, player.after):
                            bad.append(f"{scenario.name}: the clock jumps by {jump} s\n    {outcome.code} {outcome.err}")
                        shutil.rmtree(place)
                if scenario.group in ("convert", "pull"):
                    moments = [random.uniform(0, player.seconds) for _ in range(a.kills)]
                    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
                        for running, fault in pool.map(player.killed, moments):
                            kinds["killed at a random moment" if running else "ended before its kill"] += 1
                            if fault:
                                bad.append(f"{scenario.name}: {fault}")
                print(f"{scenario.name}: {len(sites)} sites, {len(work)} faults:",
                      ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())), flush=True)
        finally:
            server.stdin.close()
            server.wait()
    if a.table:
        merged = {}
        for (group, file, where, call), kinds in rows.items():
            calls, sum = merged.setdefault((group, file, where.split(" ← ")[0]), (set(), collections.Counter()))
            calls.add(call)
            sum.update(kinds)
        with open(a.table, "w") as out:
            for (group, file, function), (calls, kinds) in sorted(merged.items()):
                out.write(f"| {group} | {file} | {function} | {', '.join(sorted(calls))} | " +
                          ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) + " |\n")
    for fault in bad:
        print(fault)
    print(f"{len(bad)} of the faults end badly, in {time.time() - told:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
