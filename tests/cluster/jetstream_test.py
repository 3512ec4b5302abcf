#!/usr/bin/env python3
"""doppler batch over NATS JetStream: workers are killed at random moments and the server in the middle, and every custom_id
has the answer of a run that nobody disturbed, once.

    tests/cluster/jetstream_test.py build/doppler [TEST ...]

DOPPLER_TEST_PROMPTS: how many requests the disturbed run gets (default: 400); DOPPLER_TEST_SEED: of the moments.
Runs in a network of its own where it may (unshare), else on NATS' ports.
"""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from fleet import PATIENCE, ROOT, commands, until

PROMPTS = int(os.environ.get("DOPPLER_TEST_PROMPTS", "400"))
SEED = int(os.environ.get("DOPPLER_TEST_SEED", time.time_ns() % 1_000_000))
WORKERS = 3
WORDS = "once upon a time there was little brave cat who found the big red ball".split()
MONITOR = 8222
END = 600 + PROMPTS / 10  # seconds, on a machine that has other things to do


def request(number, tokens=None):
    prompt = " ".join(random.Random(number).choices(WORDS, k=6))
    # Few requests take long enough to be disturbed, too.
    body = {"prompt": prompt, "max_tokens": tokens or 1 + number % 8 + 24000 // PROMPTS, "temperature": number % 2,
            "ignore_eos": True}
    return {"custom_id": f"request {number}", "method": "POST", "url": "/v1/completions", "body": body}


class JetStream(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.running = []
        self.addCleanup(lambda: [self.kill(process) for process in self.running])
        self.log = open(self.folder / "log", "wb")
        self.addCleanup(self.log.close)
        self.start_server()

    def start(self, *command, **options):
        process = subprocess.Popen([str(word) for word in command], stdout=self.log, stderr=self.log, cwd=self.folder,
                                   **options)
        self.running.append(process)
        return process

    def kill(self, process):
        if process.poll() is None:
            process.kill()
        process.wait()

    def start_server(self):
        self.server = self.start("nats-server", "-js", "-a", "127.0.0.1", "-p", "4222", "-m", MONITOR, "-sd",
                                 self.folder / "store")
        until(lambda: self.monitor("healthz"), "the server to be there")

    def monitor(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{MONITOR}/{path}", timeout=5) as answer:
                return json.load(answer)
        except OSError:
            return None

    def streams(self):
        """By name: messages, and of its consumers those that nobody has yet, those that nobody has acknowledged, and how
        often one was handed out."""
        seen = self.monitor("jsz?accounts=1&streams=1&consumers=1") or {}
        found = {}
        for account in seen.get("account_details", []):
            for stream in account.get("stream_detail", []):
                consumers = {c["name"]: (c["num_pending"], c["num_ack_pending"], c["delivered"]["consumer_seq"])
                             for c in stream.get("consumer_detail") or []}
                found[stream["name"]] = (stream["state"]["messages"], consumers)
        return found

    def write(self, name, requests):
        (self.folder / name).write_text("".join(json.dumps(each) + "\n" for each in requests))

    def batch(self, *words, status=0):
        done = subprocess.run([PROGRAM, "batch", *map(str, words)], cwd=self.folder, capture_output=True, text=True,
                              timeout=END)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr

    def work(self, name, *options):
        options = options or ("--backend", "cpu", "--sequences", "32")
        return self.start(PROGRAM, "batch", "work", name, ROOT / "models/tiny", "--threads", "1", "--context", "512",
                          "--ack-wait", "2", *options)

    def answers(self, name):
        """By custom_id, each once, in the order of the file."""
        found = {}
        for line in (self.folder / name).read_text().splitlines():
            answer = json.loads(line)
            self.assertNotIn(answer["custom_id"], found)
            found[answer["custom_id"]] = answer
        return found

    def choices(self, name):
        found = self.answers(name)
        for answer in found.values():
            self.assertEqual(answer["response"]["status_code"], 200, answer)
        return {key: answer["response"]["body"]["choices"] for key, answer in found.items()}

    def test_kill_workers_and_the_server(self):
        self.write("in.jsonl", map(request, range(PROMPTS)))
        self.batch("in.jsonl", "whole.jsonl", ROOT / "models/tiny", "--backend", "cpu", "--threads", "1", "--context", "512",
                   "--sequences", "32")
        moments, kills, restarted, next_kill = random.Random(SEED), 0, False, 0
        self.batch("submit", "in.jsonl", "night")
        self.assertEqual(self.streams()["doppler-night"][0], PROMPTS)
        collect = self.start(PROGRAM, "batch", "collect", "in.jsonl", "out.jsonl", "night", "--ordered")
        workers = [self.work("night") for _ in range(WORKERS)]
        end = time.monotonic() + END
        while collect.poll() is None:
            self.assertLess(time.monotonic(), end, f"seed {SEED}: {self.streams()}")
            answered = self.streams().get("doppler-night-out", (0,))[0]
            if answered >= PROMPTS / 3 and not restarted:
                restarted = True
                self.kill(self.server)
                time.sleep(moments.uniform(0, 2))
                self.start_server()
            time.sleep(0.05)
            victim = moments.randrange(WORKERS)
            if time.monotonic() > next_kill and kills < 40 and workers[victim].poll() is None and collect.poll() is None:
                workers[victim].send_signal(signal.SIGKILL)
                workers[victim].wait()
                workers[victim] = self.work("night")
                kills += 1
                # Most of them get on, some do not even get as far as a request.
                next_kill = time.monotonic() + moments.uniform(0, 1.5)
        self.assertEqual(collect.returncode, 0, (self.folder / "log").read_text())
        for worker in workers:
            self.assertEqual(worker.wait(PATIENCE), 0, (self.folder / "log").read_text())
        self.assertTrue(restarted and kills)
        once, often = self.choices("whole.jsonl"), self.choices("out.jsonl")
        self.assertEqual(list(often), [f"request {number}" for number in range(PROMPTS)], f"seed {SEED}")
        self.assertEqual(once, often, f"seed {SEED}")
        print(f"{PROMPTS} requests, {kills} workers killed, the server once (seed {SEED})", file=sys.stderr)

    def test_what_was_stored_is_not_stored_again(self):
        self.write("in.jsonl", map(request, range(20000)))
        submit = self.start(PROGRAM, "batch", "submit", "in.jsonl", "twice")
        until(lambda: self.streams().get("doppler-twice", (0,))[0] > 100, "some requests to be stored")
        self.kill(submit)
        before = self.streams()["doppler-twice"][0]
        self.assertLess(before, 20000)
        self.batch("submit", "in.jsonl", "twice")
        self.batch("submit", "in.jsonl", "twice")
        self.assertEqual(self.streams()["doppler-twice"][0], 20000)

    def test_what_kills_its_workers_is_given_up(self):
        """Whoever runs request 3 dies: a long answer on a slow backend, and a kill whenever it alone is left."""
        requests = [request(number, tokens=2) for number in range(8)]
        requests[3]["body"].update(max_tokens=490)
        self.write("in.jsonl", requests)
        self.batch("submit", "in.jsonl", "poison")
        collect = self.start(PROGRAM, "batch", "collect", "in.jsonl", "out.jsonl", "poison")
        slow = ("--backend", "ref", "--sequences", "8")
        answered = lambda: self.streams()["doppler-poison-out"][0]
        handed_out = 0
        for _ in range(3):
            worker = self.work("poison", *slow)

            def alone():
                waiting, unacknowledged, times = self.streams()["doppler-poison"][1].get("work", (1, 0, 0))
                return (waiting, unacknowledged) == (0, 1) and times > handed_out and answered() == 7

            until(alone, "it to be the only one that is left, and handed out again")
            handed_out = self.streams()["doppler-poison"][1]["work"][2]
            self.assertIsNone(worker.poll())
            self.kill(worker)
        for tries in range(1, 11):
            worker = self.work("poison", *slow)
            until(lambda: answered() == 7 + tries, "it to begin alone")
            self.assertIsNone(worker.poll())
            self.kill(worker)
        worker = self.work("poison", *slow)
        self.assertEqual(worker.wait(PATIENCE), 0)
        self.assertEqual(collect.wait(PATIENCE), 0)
        found = self.answers("out.jsonl")
        self.assertEqual(found.pop("request 3")["error"]["code"], "given_up")
        self.assertEqual([a["response"]["status_code"] for a in found.values()], [200] * 7)
        # Seven answers, eleven beginnings alone, the dead letter and its answer.
        self.assertEqual(answered(), 7 + 11 + 2)

    def test_lines_that_are_no_requests(self):
        self.write("in.jsonl", [request(0), {"custom_id": "wrong", "url": "/elsewhere", "body": {}}])
        with open(self.folder / "in.jsonl", "a") as file:
            file.write("{]\n" + json.dumps(request(0)) + "\n")
        self.batch("in.jsonl", "whole.jsonl", ROOT / "models/tiny", "--backend", "cpu", "--ordered")
        self.batch("submit", "in.jsonl", "odd")
        worker = self.work("odd")
        self.batch("collect", "in.jsonl", "out.jsonl", "odd", "--ordered", "--remove")
        self.assertEqual(worker.wait(PATIENCE), 0)
        self.assertEqual(self.streams(), {})
        plain, queued = ([{**json.loads(line)["error"], "line": 0} if json.loads(line)["error"] else
                          json.loads(line)["response"]["body"]["choices"]
                          for line in (self.folder / name).read_text().splitlines()] for name in ("whole.jsonl", "out.jsonl"))
        self.assertEqual(plain, queued)
        self.assertEqual(len(plain), 4)

    def test_wrong_words(self):
        self.write("in.jsonl", [request(0)])
        self.write("other.jsonl", [request(1)])
        self.batch("submit", "in.jsonl", "one")
        self.assertIn("of another file", self.batch("submit", "other.jsonl", "one", status=2))
        self.assertIn("of another file", self.batch("collect", "other.jsonl", "out.jsonl", "one", status=2))
        self.assertIn("no batch of this name", self.batch("collect", "in.jsonl", "out.jsonl", "none", status=2))
        self.assertIn("no name for a batch", self.batch("submit", "in.jsonl", "a.b", status=2))
        self.assertIn("nats-server -js", self.batch("submit", "in.jsonl", "one", "--server", "nats://127.0.0.1:1", status=3))
        self.assertIn("one for the answers", self.batch("in.jsonl", status=2))
        os.environ["DOPPLER_NATS"] = "/none"
        self.addCleanup(os.environ.pop, "DOPPLER_NATS")
        self.assertIn("libnats-dev", self.batch("submit", "in.jsonl", "one", status=5))


class Page(unittest.TestCase):
    def test_commands_of_the_page(self):
        """docs/scale.md's, with its own requests."""
        with tempfile.TemporaryDirectory() as folder:
            for name in ("models", "deploy"):
                (pathlib.Path(folder) / name).symlink_to(ROOT / name)
            environment = {**os.environ, "PATH": f"{pathlib.Path(PROGRAM).resolve().parent}:{os.environ['PATH']}"}
            requests = re.search(r"cat > requests.jsonl <<'END'\n.*?\nEND\n", commands("cat > requests.jsonl"), re.S)[0]
            text = f"trap 'kill $(jobs -p)' EXIT\n{requests}{commands('nats-server')}{commands('doppler batch work')}"
            subprocess.run(["bash", "-e", "-c", text], cwd=folder, env=environment, check=True, timeout=END)
            lines = (pathlib.Path(folder) / "answers.jsonl").read_text().splitlines()
            self.assertEqual({json.loads(line)["custom_id"] for line in lines}, {"a", "b", "c"})
            self.assertTrue(all(json.loads(line)["response"]["status_code"] == 200 for line in lines))


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
