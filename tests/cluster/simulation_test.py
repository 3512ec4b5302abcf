#!/usr/bin/env python3
"""tools/simulate_fleet.py's predictions for one, two and three replicas, against what `doppler bench serve` measures of them
behind HAProxy: throughput with as many clients as keep them busy; and with half as many requests a second the 95th
percentile of the time to the first token.

    tests/cluster/simulation_test.py build/doppler [TEST ...]

Others may use the machine. So the replicas get a machine of their own inside it, in slow motion: each may use four tenths of
one core, and all together eight, which they are given before anybody else. That is three replicas of one thread on two
cores, each less than half as fast. What everybody else does takes next to nothing of it; nor of the balancer and the load
generator, which need little. Control groups do that, which root may make. Of several rounds, each with its own measurement
of a replica, the mean counts. The model has the shape of Gemma 3 270M, whose weights are in no cache: how many replicas take
turns on a core is nothing to them.
"""
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import unittest

from fleet import REPLICAS, ROOT, Fleet

ROUNDS = 3
WITHIN = 0.2
CORE, CORES = 0.4, 2   # of a core of the machine; how many of these the replicas share
PERIOD = 10000         # microseconds: a replica's share is a tick of a kernel of 250 Hz, which looks no more often
PROMPTS, TOKENS = "16-48", "8-24"
CLIENTS = 6            # of a replica, where it is to be busy
FRONTS = {1: 8091, 2: 8092, 3: 8080}  # of so many replicas


def balancer():
    """What is documented, with round robin, so that no draw of a hash decides which replica has how much; and before the
    first and the first two replicas the same."""
    text = (ROOT / "deploy/haproxy.cfg").read_text()
    text, count = re.subn(r"^  balance hash .*\n  hash-type .*\n  hash-balance-factor .*\n", "  balance roundrobin\n", text,
                          flags=re.M)
    assert count == 1
    for replicas, port in FRONTS.items():
        if port != 8080:
            text += f"\nlisten first{replicas}\n  bind 127.0.0.1:{port}\n  balance roundrobin\n  default-server maxconn 32\n"
            text += "".join(f"  server {name} 127.0.0.1:{at}\n" for name, at in list(REPLICAS.items())[:replicas])
    return text


class Group:
    """A control group for the time of processor, of version 1 or 2, that may use so much of a core."""

    def __init__(self, parent, name, core):
        top = pathlib.Path("/sys/fs/cgroup")
        self.old = (top / "cpu/cpu.shares").exists() or (top / "cpu/cgroup.procs").exists()
        self.path = (parent.path if parent else top / "cpu" if self.old else top) / name
        if not self.old:
            (self.path.parent / "cgroup.subtree_control").write_text("+cpu")
        self.path.mkdir()
        quota = int(core * PERIOD)
        if self.old:
            self.set("cpu.cfs_period_us", PERIOD)
            self.set("cpu.cfs_quota_us", quota)
            self.set("cpu.shares", 262144)
        else:
            self.set("cpu.max", f"{quota} {PERIOD}")
            self.set("cpu.weight", 10000)

    def set(self, name, value):
        (self.path / name).write_text(str(value))

    def remove(self):
        with contextlib.suppress(OSError):
            self.path.rmdir()


class Simulation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.work.cleanup)
        cls.folder = pathlib.Path(cls.work.name)
        try:
            machine = Group(None, f"doppler-{os.getpid()}", CORES * CORE)
            cls.addClassCleanup(machine.remove)
            groups = [Group(machine, name, CORE) for name in REPLICAS]
            cls.around = Group(None, f"doppler-{os.getpid()}-around", 1)
        except OSError as error:
            raise unittest.SkipTest(f"control groups cannot be made here: {error}")
        for group in (*groups, cls.around):
            cls.addClassCleanup(group.remove)
        model = cls.folder / "model"
        subprocess.run([PROGRAM, "synth", "gemma-3-270m", model], check=True, stdout=subprocess.DEVNULL)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (model / name).symlink_to(ROOT / "build/tokenizers/gemma3" / name)
        cls.fleet = Fleet(PROGRAM, cls.folder / "fleet", "--backend cpu", balancer(), model)
        cls.addClassCleanup(cls.fleet.stop)
        # One core of the machine's: what a group may use is handed to cores in pieces, and what is left of one is lost.
        core = max(os.sched_getaffinity(0))
        for name, group in zip(REPLICAS, groups):
            group.set("cgroup.procs", cls.fleet.pids[name])
            for thread in os.listdir(f"/proc/{cls.fleet.pids[name]}/task"):
                os.sched_setaffinity(int(thread), [core])
        cls.around.set("cgroup.procs", cls.fleet.pids["balancer"])
        cls.seed = 0

    @classmethod
    def start(cls, *command):
        """A load generator."""
        return subprocess.Popen([PROGRAM, "bench", "serve", *map(str, command)], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, preexec_fn=lambda: cls.around.set("cgroup.procs", os.getpid()))

    def bench(self, port, **load):
        """One load of its own prompts; the file with its result."""
        Simulation.seed += 1
        path = self.folder / f"{self.seed}.json"
        options = {"endpoint": "completions", "prompt-tokens": PROMPTS, "tokens": TOKENS, "seed": self.seed, "output": path}
        arguments = [word for key, value in {**options, **load}.items() for word in (f"--{key}", value)]
        self.assertEqual(self.start(f"http://127.0.0.1:{port}", *arguments).wait(), 0)
        result = json.loads(path.read_text())
        self.assertEqual(result["failed"], 0, result["failures"])
        return path, result

    def node(self):
        """Files with what one replica does, asked directly, while its neighbour has a core of its own and works: they have
        caches and memory in common, and will."""
        neighbour = self.start(f"http://127.0.0.1:{REPLICAS['b']}", "--clients", CLIENTS, "--requests", 100000,
                               "--prompt-tokens", PROMPTS, "--tokens", TOKENS, "--endpoint", "completions", "--seed", 1000000)
        try:
            return self.node_beside_it()
        finally:
            neighbour.kill()
            neighbour.wait()

    def node_beside_it(self):
        alone = [self.bench(REPLICAS["a"], clients=1, requests=20, **{"prompt-tokens": n}) for n in (16, 48)]
        more = [self.bench(REPLICAS["a"], clients=n, requests=10 * n) for n in (2, 4, CLIENTS)]
        return [path for path, _ in alone + more]

    def predict(self, node, replicas, *load):
        command = [sys.executable, ROOT / "tools/simulate_fleet.py", *node, "--nodes", str(replicas), "--routing", "robin",
                   "--replicas-per-machine", "3", "--cores", str(CORES), "--prompt-tokens", PROMPTS, "--tokens", TOKENS,
                   "--json", *map(str, load)]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)[0]

    def round(self, ratios):
        node = self.node()
        for replicas, port in FRONTS.items():
            clients = CLIENTS * replicas
            predicted = self.predict(node, replicas, "--clients", clients, "--requests", 10 * clients)
            _, full = self.bench(port, clients=clients, requests=10 * clients)
            # Half of what they can do, and a few requests beyond the percentile.
            path, half = self.bench(port, rate=predicted["request_throughput"] / 2, requests=80)
            waited = self.predict(node, replicas, "--replay", path)
            for what, got, said in (
                    ("requests a second", full["request_throughput"], predicted["request_throughput"]),
                    ("p95 of the first token, ms", half["ttft_ms"]["p95"], waited["ttft_ms"]["p95"])):
                ratios.setdefault((replicas, what), []).append(said / got)
                print(f"{replicas} replicas, {what}: {said:.2f} predicted, {got:.2f} measured, {said / got - 1:+.0%}",
                      file=sys.stderr)

    def test_what_is_measured_was_predicted(self):
        ratios = {}
        for _ in range(ROUNDS):
            self.round(ratios)
        for (replicas, what), of_rounds in ratios.items():
            self.assertAlmostEqual(statistics.mean(of_rounds), 1, delta=WITHIN, msg=f"{replicas} replicas: {what}")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
