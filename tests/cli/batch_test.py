#!/usr/bin/env python3
"""doppler batch, killed at random moments: every custom_id once, and the same answers as a run that nobody disturbed.

    tests/cli/batch_test.py build/doppler [TEST ...]

DOPPLER_TEST_PROMPTS: how many requests the killed runs get (default: 400); DOPPLER_TEST_SEED: of the moments.
"""
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = sys.argv.pop(1)
PATIENCE = 600  # seconds for a run to end, on a machine that has other things to do
PROMPTS = int(os.environ.get("DOPPLER_TEST_PROMPTS", "400"))
SEED = int(os.environ.get("DOPPLER_TEST_SEED", time.time_ns() % 1_000_000))
WORDS = "once upon a time there was little brave cat who found the big red ball".split()


def request(number):
    prompt = " ".join(random.Random(number).choices(WORDS, k=6))
    body = {"prompt": prompt, "max_tokens": 1 + number % 8, "temperature": number % 2}
    return {"custom_id": f"request {number}", "method": "POST", "url": "/v1/completions", "body": body}


class Batch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.input = self.folder / "in.jsonl"

    def write(self, requests):
        self.input.write_text("".join(json.dumps(each) + "\n" for each in requests))

    def command(self, output, *options):
        return [PROGRAM, "batch", str(self.input), str(self.folder / output), str(ROOT / "models/tiny"), "--backend",
                "cpu", "--threads", "1", "--context", "64", "--sequences", "32", *options]

    def run_batch(self, output, *options):
        done = subprocess.run(self.command(output, *options), capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def answers(self, output):
        """By custom_id, in the order of the file."""
        found = {}
        for line in (self.folder / output).read_text().splitlines():
            answer = json.loads(line)
            self.assertNotIn(answer["custom_id"], found)
            self.assertEqual(answer["response"]["status_code"], 200, line)
            found[answer["custom_id"]] = answer["response"]["body"]["choices"]
        return found

    def test_kill_at_random_moments(self):
        self.write(map(request, range(PROMPTS)))
        begun = time.monotonic()
        self.run_batch("whole.jsonl")
        took = time.monotonic() - begun
        moments = random.Random(SEED)
        output, kills, seen = self.folder / "killed.jsonl", 0, 0
        while not output.exists():
            # Long enough to get on, now and then too short to answer anything.
            patience = moments.uniform(0, took / 3 * (1 + kills / 10))
            process = subprocess.Popen(self.command("killed.jsonl", "--ordered"), stderr=subprocess.DEVNULL)
            try:
                self.assertEqual(process.wait(patience), 0, f"seed {SEED}")
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
            incomplete = self.folder / "killed.jsonl.incomplete"
            if incomplete.exists():
                now = incomplete.read_bytes().count(b"\n")
                self.assertGreaterEqual(now, seen, "answers that were there are gone")
                seen = now
            self.assertLess(kills, 200)
        self.assertGreater(kills, 0)
        once, often = self.answers("whole.jsonl"), self.answers("killed.jsonl")
        self.assertEqual(list(often), [request(i)["custom_id"] for i in range(PROMPTS)], f"seed {SEED}")
        self.assertEqual(once, often, f"seed {SEED}")
        self.assertFalse([path.name for path in self.folder.iterdir() if path.suffix != ".jsonl"])
        print(f"{PROMPTS} requests, {kills} kills", file=sys.stderr)

    def test_shards_one_after_another_are_the_whole(self):
        self.write(map(request, range(30)))
        self.run_batch("whole.jsonl", "--ordered")
        parts = {}
        for shard in (1, 2, 3, 4):
            self.run_batch(f"{shard}.jsonl", "--ordered", "--shard", f"{shard}/4")
            parts |= self.answers(f"{shard}.jsonl")
        whole = self.answers("whole.jsonl")
        self.assertEqual(parts, whole)
        self.assertEqual(list(parts), list(whole))

    def test_end_of_job(self):
        """SIGTERM, as a scheduler sends it before it kills: what is answered stays, and the exit code says so."""
        self.write(map(request, range(2000)))
        process = subprocess.Popen(self.command("out.jsonl"), stderr=subprocess.PIPE, text=True)
        incomplete = self.folder / "out.jsonl.incomplete"
        end = time.monotonic() + PATIENCE
        while not (incomplete.exists() and incomplete.stat().st_size) and time.monotonic() < end:
            time.sleep(0.01)
        process.terminate()
        self.assertIn("goes on where it stopped", process.communicate(timeout=PATIENCE)[1])
        self.assertEqual(process.returncode, 3)
        self.assertTrue(incomplete.stat().st_size)
        self.assertFalse((self.folder / "out.jsonl").exists())

    def test_progress_and_summary(self):
        self.write([request(0), {"custom_id": "bad", "url": "/v1/completions", "body": {}}])
        said = self.run_batch("out.jsonl", "--log", "verbose")
        self.assertRegex(said, r"2 answers, 0 of them from earlier runs; 1 of the others are errors")
        self.assertRegex(said, r"1 of answers in [\d.]+ s")
        self.assertRegex(self.run_batch("out.jsonl"), r"2 answers, 2 of them from earlier runs")

    def test_wrong_words(self):
        self.write([request(0)])
        for shard in ("0/4", "5/4", "1", "a/b"):
            done = subprocess.run(self.command("out.jsonl", "--shard", shard), capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, shard)
            self.assertIn("1/8 to 8/8", done.stderr)
        done = subprocess.run([PROGRAM, "batch", str(self.folder / "none"), "out"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 3)
        self.assertIn("none", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
