#!/usr/bin/env python3
"""doppler under mpirun: the text of one process whatever the ranks, an end with a sentence where one dies.

    tests/cluster/ranks_test.py build/doppler [TEST ...]

DOPPLER_TEST_RANKS=1: all checkpoints that have layers enough, and four ranks of each; else some, and two ranks.
Exits 77 where there is no mpirun.
"""
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import fleet

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.path.abspath(sys.argv.pop(1))
REFERENCE = pathlib.Path(os.environ.get("DOPPLER_REFERENCE", ROOT / "../shared/reference")) / "models"
ALL = os.environ.get("DOPPLER_TEST_RANKS") == "1"
PATIENCE = 300  # seconds for anything, on a machine that has other things to do
NOTICED = 5  # seconds until the end of a job that lost a rank
# Root may, nobody is bound to a core, and nothing leaves the machine.
ENVIRONMENT = os.environ | {"PATH": f"{os.path.dirname(PROGRAM)}:{os.environ['PATH']}",
                            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                            "OMPI_MCA_btl": "self,vader", "OMPI_MCA_oob_tcp_if_include": "lo",
                            "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}


def command(ranks, *words):
    launcher = [] if ranks == 1 else ["mpirun", "-n", str(ranks)]
    return [*launcher, PROGRAM, *map(str, words)]


def run(ranks, *words):
    return subprocess.run(command(ranks, *words), env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE)


def layers(folder):
    config = json.loads((folder / "config.json").read_text())
    return config.get("num_hidden_layers") or config["text_config"]["num_hidden_layers"]


def checkpoints():
    folders = {}
    for root in (REFERENCE, ROOT / "tests/data/models"):
        for folder in sorted(root.glob("*")):
            if (folder / "config.json").exists():
                folders[folder.name] = folder
    if not ALL:
        return [folders[name] for name in ("gemma3-a", "gptoss-a", "qwen35-a")]
    # Adapters are for converters; these two do not write text.
    return [folder for name, folder in folders.items()
            if not name.startswith(("lora-", "embeddinggemma")) and layers(folder) > 1]


def until(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {PATIENCE} s for {what}")
        time.sleep(0.02)


def ranks_below(launcher):
    """The processes of a job by rank."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int(re.search(r"\) \S (\d+)", (folder / "stat").read_text())[1])
            variables = dict(v.split("=", 1) for v in (folder / "environ").read_text().split("\0") if "=" in v)
        except (OSError, TypeError, ValueError):
            continue
        if parent == launcher and "OMPI_COMM_WORLD_RANK" in variables:
            found[int(variables["OMPI_COMM_WORLD_RANK"])] = int(folder.name)
    return found


class Text(unittest.TestCase):
    def test_is_that_of_one_process(self):
        tried = {}
        for folder in checkpoints():
            # Drawn by the logits, so that nearly any other bit gives another text; and the likeliest tokens.
            for wish in (("--temperature", 1, "--seed", 7), ()):
                words = ("run", folder, "--prompt-ids", ",".join(map(str, range(3, 90, 2))), "--max-tokens", 24,
                         "--context", 160, "--backend", "cpu", "--threads", 1, "--json", *wish)
                alone = run(1, *words)
                if alone.returncode == 5:
                    break  # a model that the program does not run
                self.assertEqual(alone.returncode, 0, alone.stderr)
                expected = json.loads(alone.stdout)["token_ids"]
                for ranks in (2, 4) if ALL else (2,):
                    if ranks > layers(folder):
                        continue
                    together = run(ranks, *words)
                    if "cannot be divided among so many ranks" in together.stderr:
                        continue  # layers that share what others computed stay together
                    self.assertEqual(together.returncode, 0, f"{folder.name}: {together.stderr}")
                    self.assertEqual(json.loads(together.stdout)["token_ids"], expected, f"{folder.name}, {ranks} ranks")
                    tried.setdefault(folder.name, set()).add(ranks)
        print(f"{len(tried)} checkpoints: {', '.join(tried)}")
        self.assertGreaterEqual(len(tried), 3)

    def test_of_the_model_that_comes_along(self):
        words = ("run", ROOT / "models/tiny", "--raw", "Once upon a time", "--max-tokens", 40, "--backend", "cpu",
                 "--threads", 1)
        four = run(4, *words, "--log", "verbose")
        self.assertEqual(four.stdout, run(1, *words).stdout)
        parts = re.findall(r"rank (\d): layers (\d) to (\d), ", four.stderr)
        self.assertEqual([int(rank) for rank, _, _ in parts], [0, 1, 2, 3], four.stderr)
        layers_of = [range(int(first), int(last) + 1) for _, first, last in parts]
        self.assertEqual([layer for stage in layers_of for layer in stage], list(range(8)))
        wire = re.search(r"to rank 1: (\d+) tokens in \d+ batches, (\d+) bytes as reckoned and (\d+) sent", four.stderr)
        self.assertEqual(wire[2], wire[3])
        self.assertGreater(int(wire[1]), 40)
        print(wire[0])


class Bench(unittest.TestCase):
    def test_measures_all_ranks_together(self):
        result = run(2, "bench", "batch", ROOT / "models/tiny", "--sequences", 4, "--prompt-tokens", 16, "--tokens", 8,
                     "--runs", 1, "--backend", "cpu", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        measured = json.loads(result.stdout)
        self.assertEqual(measured["backend"], "pipeline")
        self.assertGreater(measured["batch"][0]["decode_tok_s"]["median"], 0)
        result = run(2, "bench", "inference", ROOT / "models/tiny", "--prompt-tokens", 16, "--tokens", 8, "--runs", 1,
                     "--backend", "cpu", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)


class Refusals(unittest.TestCase):
    def test_more_ranks_than_layers(self):
        result = run(5, "run", ROOT / "tests/data/models/llama-a", "--prompt-ids", "3,5", "--backend", "cpu")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("the model cannot be divided among so many ranks", result.stderr)

    def test_another_model(self):
        words = ["--prompt-ids", "3,5", "--backend", "cpu"]
        result = subprocess.run(["mpirun", "-n", "1", PROGRAM, "run", str(ROOT / "tests/data/models/llama-a"), *words,
                                 ":", "-n", "1", PROGRAM, "run", str(ROOT / "tests/data/models/qwen3-a"), *words],
                                env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("this rank has another model than the first", result.stderr)


class Server(unittest.TestCase):
    def start(self, ranks=2, words=None):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.errors = pathlib.Path(self.folder.name) / "errors"
        with self.errors.open("w") as errors:
            words = words or command(ranks, "serve", ROOT / "models/tiny", "--port", 0, "--backend", "cpu", "--threads", 1)
            job = subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT)
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        address = job.stdout.readline().strip()
        self.assertIn("http://", address, self.errors.read_text())
        return job, address, ranks_below(job.pid)

    def ask(self, address, count):
        """Answers to one question that come at once; None where the server ended before."""
        body = json.dumps({"prompt": "Once upon a time", "max_tokens": 30, "temperature": 1, "seed": 3}).encode()

        def one():
            request = urllib.request.Request(f"{address}/v1/completions", body, {"content-type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                    return json.load(answer)["choices"][0]["text"]
            except (OSError, http.client.HTTPException):
                return None

        pool = concurrent.futures.ThreadPoolExecutor(count)
        self.addCleanup(pool.shutdown)
        return [pool.submit(one) for _ in range(count)]

    def test_answers_and_ends(self):
        job, address, processes = self.start()
        texts = [answer.result() for answer in self.ask(address, 6)]
        self.assertEqual(len(set(texts)), 1, texts)
        one = subprocess.run([PROGRAM, "run", ROOT / "models/tiny", "--raw", "Once upon a time", "--max-tokens", "30",
                              "--temperature", "1", "--seed", "3", "--backend", "cpu"], capture_output=True, text=True)
        self.assertEqual(texts[0].strip(), one.stdout.strip())
        os.kill(processes[0], signal.SIGTERM)
        self.assertEqual(job.wait(PATIENCE), 0, self.errors.read_text())

    @unittest.skipUnless(ALL, "takes a port, which may be somebody else's")
    def test_page(self):
        """docs/scale.md's commands."""
        block = fleet.commands("mpirun -n 2 doppler run")
        done = subprocess.run(["bash", "-e", "-c", block], env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        job, address, processes = self.start(words=["bash", "-c", "exec " + fleet.commands("mpirun -n 2 doppler serve")])
        self.assertGreater(len(self.ask(address, 1)[0].result()), 20)
        os.kill(processes[0], signal.SIGTERM)
        self.assertEqual(job.wait(PATIENCE), 0, self.errors.read_text())

    def lose(self, rank, how):
        job, address, processes = self.start(3)
        self.ask(address, 1)
        lost = time.monotonic()
        os.kill(processes[rank], how)
        code = job.wait(PATIENCE)
        seconds = time.monotonic() - lost
        said = self.errors.read_text()
        print(f"rank {rank}, {how.name}: the job ended with code {code} after {seconds:.1f} s")
        self.assertNotEqual(code, 0)
        self.assertLess(seconds, NOTICED, said)
        until(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in processes.values()), "the others' end")
        return said

    def test_a_rank_is_killed(self):
        for rank in (0, 2) if ALL else (2,):
            said = self.lose(rank, signal.SIGKILL)
            self.assertRegex(said, f"rank {rank}.*(exited on signal 9|has not been heard of)")

    def test_a_rank_stands_still(self):
        for rank in (0, 1) if ALL else (1,):
            said = self.lose(rank, signal.SIGSTOP)
            self.assertRegex(said, f"rank {rank} has not been heard of for .* The job ends")


if __name__ == "__main__":
    if not shutil.which("mpirun") or not (pathlib.Path(PROGRAM).parent / "libdoppler_mpi.so").exists():
        print(f"{__file__}: Skipped\nmpirun or what is built with MPI is not here (openmpi-bin, libopenmpi-dev)")
        sys.exit(77)
    unittest.main(verbosity=2)
