#!/usr/bin/env python3
"""doppler run, serve and convert under --sandbox: what they do is what they do without it.

    tests/cli/sandbox_test.py build/doppler [TEST ...]

What the sandbox refuses is asked in tests/base/sandbox_test.cpp.
"""
import filecmp
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
TINY = ROOT / "models/tiny"
SWIFTSHADER = "/usr/lib/chromium/vk_swiftshader_icd.json"
PATIENCE = 300  # seconds for anything to end, on a machine that has other things to do
UNABLE = "this kernel"  # begins every sentence about a kernel that has no sandbox


def call(*words, **more):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE, **more)


class Sandbox(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def same_files(self, one, other):
        names = sorted(path.name for path in one.iterdir())
        self.assertEqual(names, sorted(path.name for path in other.iterdir()))
        self.assertEqual(filecmp.cmpfiles(one, other, names, shallow=False)[1:], ([], []))

    def convert(self, source, target, *options):
        done = call("convert", source, target, *options, cwd=self.folder)
        if "--sandbox" in options and UNABLE in done.stderr and done.returncode == 5:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_convert_writes_the_same_bytes(self):
        (self.folder / "in").mkdir()
        (self.folder / "out/held").mkdir(parents=True)
        gguf = self.folder / "in/tiny.gguf"
        self.convert(TINY, gguf, "--sandbox")
        self.convert(gguf, "out/free")
        held = self.convert(gguf, "out/held/free", "--sandbox")
        self.assertIn("sandboxed by Landlock", held.stderr)
        self.same_files(self.folder / "out/free", self.folder / "out/held/free")
        self.convert(gguf, "out/held/free/", "--sandbox", "--force")
        self.same_files(self.folder / "out/free", self.folder / "out/held/free")

    def test_run_says_the_same(self):
        grammar = self.folder / "yes.gbnf"
        grammar.write_text('root ::= [a-z ]+ "."')
        words = ["run", "--prompt", "What is red?", "--backend", "cpu", "--temperature", 0, "--grammar", grammar]
        free, held = call(*words), call(*words, "--sandbox")
        if UNABLE in held.stderr and held.returncode == 5:
            self.skipTest(held.stderr)
        self.assertEqual((free.returncode, held.returncode), (0, 0), free.stderr + held.stderr)
        self.assertEqual(free.stdout, held.stdout)
        self.assertTrue(free.stdout.strip())

    def answer(self, backend, environment, *options):
        """The text of eight greedy tokens, and what the server said on standard error."""
        command = [PROGRAM, "serve", f"tiny={TINY}", "--port", "0", "--backend", backend, "--context", "64", *options]
        with open(self.folder / "said", "w") as said:
            running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env=environment)
        with running as server:
            try:
                url = server.stdout.readline().strip()
                if not url:
                    server.wait(PATIENCE)
                    text = (self.folder / "said").read_text()
                    if UNABLE in text:
                        self.skipTest(text)
                    self.fail(text)
                body = json.dumps({"prompt": "Once", "max_tokens": 8, "temperature": 0}).encode()
                with urllib.request.urlopen(f"{url}/v1/completions", body, timeout=PATIENCE) as reply:
                    return json.load(reply)["choices"][0]["text"], (self.folder / "said").read_text()
            finally:
                server.terminate()
                self.assertEqual(server.wait(PATIENCE), 0, (self.folder / "said").read_text())

    def same_answer(self, backend, environment):
        free, _ = self.answer(backend, environment)
        held, said = self.answer(backend, environment, "--sandbox")
        self.assertEqual(free, held)
        self.assertIn("sandboxed by Landlock", said)

    def test_serve_answers_on_the_cpu(self):
        self.same_answer("cpu", None)

    def test_serve_answers_on_a_gpu(self):
        environment = dict(os.environ)
        if not environment.get("VK_ICD_FILENAMES") and os.path.exists(SWIFTSHADER):
            environment["VK_ICD_FILENAMES"] = SWIFTSHADER
        done = call("devices", env=environment)
        if done.returncode != 0 or not done.stdout.startswith("0"):
            self.skipTest("no GPU, and no software GPU: " + done.stdout + done.stderr)
        self.same_answer("webgpu", environment)

    def test_what_comes_from_elsewhere_is_fetched_before(self):
        done = call("serve", "hf:nobody/nothing", "--sandbox", "--offline")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("hf:nobody/nothing", done.stderr)


if __name__ == "__main__":
    unittest.main()
