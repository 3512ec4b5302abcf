#!/usr/bin/env python3
"""Three replicas behind HAProxy, by the commands of docs/scale.md: who dies, stands still or goes down loses nothing that
had not begun, nothing comes twice, and conversations find their caches again.

    tests/cluster/replicas_test.py build/doppler [TEST ...]

Runs in a network of its own where it may (unshare), else on the ports of docs/scale.md.
"""
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

import fleet
from fleet import BALANCER, REPLICAS, Fleet, ask, crowd, get, metric, until

WORDS = "once upon a time there was little brave cat who found the big red ball in green garden near old tree".split()
# deploy/haproxy.cfg: a check each second, two that wait two seconds, 0.2 seconds between them.
NOTICED = 1 + 2 + 0.2 + 2
SLACK = 5  # seconds for what takes a tenth of one, on a machine that has other things to do


def words(seed, count):
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def said(role, text):
    return {"role": role, "content": text}


def question(number, stream):
    """About a quarter of a second of one core, alone; greedy, so the same wherever it is answered."""
    return {"messages": [said("user", f"{number} {words(number, 12)}")], "max_tokens": 700, "ignore_eos": True,
            "temperature": 0, "stream": stream}


def round_robin():
    """What is documented, without the hash."""
    text = (fleet.ROOT / "deploy/haproxy.cfg").read_text()
    changed, count = re.subn(r"^  balance hash .*\n  hash-type .*\n  hash-balance-factor .*\n", "  balance roundrobin\n",
                             text, flags=re.M)
    assert count == 1
    return changed


class Replicas(unittest.TestCase):
    def fleet(self, **options):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        running = Fleet(PROGRAM, pathlib.Path(folder.name) / "fleet", **options)
        self.addCleanup(running.stop)
        return running

    def conversations(self, count, turns, clients, **options):
        """The share of prompt tokens that replicas found in their caches, over conversations about a text each, whose
        turns come in rounds, each round in another order; and the mean length of a prompt."""
        running = self.fleet(**options)
        talks = [[said("user", f"{talk} {words(talk, 150)}")] for talk in range(count)]
        for turn in range(turns):
            order = random.Random(turn).sample(range(count), count)
            jobs = [lambda talk=talk: ask({"messages": talks[talk], "max_tokens": 12, "ignore_eos": True})
                    for talk in order]
            for talk, answer in zip(order, crowd(jobs, clients)):
                self.assertTrue(answer.whole, answer.error)
                talks[talk] += [said("assistant", answer.text), said("user", words(f"{talk} {turn}", 10))]
        found, asked = (sum(metric(port, f"prefix_cache_{what}_total") for port in REPLICAS.values())
                        for what in ("hits", "queries"))
        running.stop()
        return found / asked, asked / count / turns

    def compare(self, cache):
        load = {"count": 60, "turns": 8, "clients": 24, "serve": f"--cache-memory {cache}"}
        hashed, length = self.conversations(**load)
        spread, _ = self.conversations(**load, balancer=round_robin())
        print(f"cache of {cache}: of prompts of {length:.0f} tokens found again: hashing {hashed:.1%}, round robin "
              f"{spread:.1%}: {hashed / spread:.1f} times", file=sys.stderr)
        return hashed / spread

    def test_prefix_cache_hit_rate(self):
        # Of three replicas the turn before was on the right one a third of the time: more than 3 comes from what each
        # must keep, all conversations or a third of them. 20 MiB are room for 20 conversations, but not for 60.
        self.assertGreaterEqual(self.compare("20MiB"), 3)
        self.assertGreater(self.compare("100MiB"), 1)

    def test_conversations_stay(self):
        running = self.fleet()

        def told(text, at="messages"):
            def body(turn):
                more = [said("assistant", "hm"), said("user", "go on")] * turn
                return {"model": "tiny", at: [*text, *more], "max_tokens": 4, "max_output_tokens": 4}
            return body

        begins = "conversation {}"
        parts = [{"type": "text", "text": begins}]
        kinds = {
            "text": ("/v1/chat/completions", told([said("user", begins)])),
            "parts": ("/v1/chat/completions", told([said("user", parts)])),
            "behind a system prompt": ("/v1/chat/completions", told([said("system", "Be {good}."), said("user", begins)])),
            "escapes": ("/v1/chat/completions", told([said("user", begins + " \u4e2d\u6587")])),
            "escapes behind a system prompt": (
                "/v1/chat/completions", told([said("system", "Be good."), said("user", begins + " \u4e2d\u6587")])),
            "Anthropic": ("/v1/messages", told([said("user", begins)])),
            "Ollama": ("/api/chat", lambda turn: {**told([said("user", begins)])(turn), "stream": False}),
            "responses": ("/v1/responses", told([said("user", begins)], "input")),
            "completion": ("/v1/completions",
                           lambda turn: {"prompt": begins + " " + words(7, 300) + " more" * turn, "max_tokens": 4}),
        }
        for kind, (path, body) in kinds.items():
            used = set()
            for talk in range(12):
                by = set()
                for turn in range(3):
                    time.sleep(0.05)  # HAProxy counts an answer as running a moment after its end
                    text = fleet.json.dumps(body(turn)).replace("{}", str(talk)).encode()
                    answer = ask(text, path=path)
                    self.assertEqual((answer.status, answer.error), (200, ""), kind)
                    by.add(answer.by)
                self.assertEqual(len(by), 1, kind)
                used |= by
            # That one of three replicas gets none of 12 happens once in 40 times for a fair draw, and not to this one.
            self.assertEqual(used, set(REPLICAS), kind)

    def disturb(self, running, what, disturbance):
        """The same 60 questions twice, the second time with a disturbance once some are answered and replica b is busy.
        Every answer that had not begun must be there, equal to the undisturbed one, and computed to its end once."""
        questions = [question(number, stream=number % 2 == 0) for number in range(60)]
        plain = crowd([lambda q=q: ask({**q, "stream": False}) for q in questions], 12)
        moment = []

        def during(ended):
            until(lambda: ended() >= 8 and metric(REPLICAS["b"], "num_requests_running") >= 2, "replica b to be busy")
            disturbance(running)
            moment.append(time.monotonic())

        answers = crowd([lambda q=q, n=n: ask(q, f"{what}-{n}") for n, q in enumerate(questions)], 12, during)
        cut = []
        for number, (answer, before) in enumerate(zip(answers, plain)):
            self.assertTrue(before.whole, before.error)
            if answer.whole:
                self.assertEqual(answer.text, before.text)
            else:
                cut.append(answer)
                self.assertTrue(questions[number]["stream"], f"{what}-{number}: {answer.status} {answer.error}")
                self.assertEqual((answer.status, answer.by), (200, "b"), answer.error)
                self.assertLess(answer.head, moment[0])
                self.assertTrue(before.text.startswith(answer.text))
        ends = [line["id"] for line in running.requests() if line.get("finish") == "length"]
        for number, answer in enumerate(answers):
            self.assertEqual(ends.count(f"{what}-{number}"), int(answer.whole))
        times = sorted(answer.end - answer.asked for answer in answers)
        print(f"{what}: {len(answers)} asked, {sum(a.whole for a in answers)} whole, {len(cut)} streams cut, "
              f"{running.counter('wredis')} sent again; the slowest took {times[-1]:.2f} s", file=sys.stderr)
        return cut

    def test_kill(self):
        running = self.fleet()
        self.disturb(running, "kill", lambda fleet: fleet.signal("b", signal.SIGKILL))
        self.assertGreater(running.counter("wredis"), 0)
        until(lambda: running.states()["b"] == "DOWN", "HAProxy to notice", NOTICED + SLACK)
        running.start("b")
        self.assertIn("b", {ask(question(number, False)).by for number in range(12)})

    def test_drain(self):
        running = self.fleet()
        self.assertEqual(self.disturb(running, "drain", lambda fleet: fleet.signal("b", signal.SIGTERM)), [])
        until(lambda: not running.alive("b"), "replica b to exit")
        until(lambda: running.states()["b"] == "DOWN", "HAProxy to notice", NOTICED + SLACK)
        running.start("b")

    def test_what_runs_there_may_end(self):
        running, moment = self.fleet(), []

        def during(ended):
            busy = lambda: [name for name, port in REPLICAS.items() if metric(port, "num_requests_running") >= 2]
            until(busy, "a replica to be busy")
            moment.extend([busy()[0], time.monotonic()])
            running.signal(moment[0], signal.SIGTERM)

        [answer] = crowd([lambda: ask({**question(0, False), "n": 32})], 1, during)
        self.assertTrue(answer.whole, answer.error)
        self.assertEqual(answer.by, moment[0])
        self.assertGreater(answer.end - moment[1], 1 + 0.2 + 1)  # HAProxy was told no twice before that

    def test_streams_are_passed_on_at_once(self):
        self.fleet()
        # 200 tokens are there before 200 ms are over, for which a kernel that waits for more would keep the first.
        answers = [ask({**question(number, True), "max_tokens": 200}) for number in range(11)]
        parts = sorted((answer.first - answer.asked) / (answer.end - answer.asked) for answer in answers)
        self.assertLess(parts[5], 0.5)

    def test_stall(self):
        running = self.fleet()
        self.disturb(running, "stall", lambda fleet: fleet.signal("b", signal.SIGSTOP))
        until(lambda: running.states()["b"] == "DOWN", "HAProxy to notice", NOTICED + SLACK)
        self.assertGreater(running.counter("wredis"), 0)

    def test_one_that_stands_still_holds_up_nobody_else(self):
        running = self.fleet()
        bodies = [{"messages": [said("user", f"{number} hello")], "max_tokens": 4} for number in range(60)]
        home = {number: ask(body).by for number, body in enumerate(bodies)}
        running.signal("b", signal.SIGSTOP)
        answers = crowd([lambda body=body: ask(body) for body in bodies], len(bodies))
        for number, answer in enumerate(answers):
            self.assertTrue(answer.whole, answer.error)
            self.assertNotEqual(answer.by, "b")
            took = answer.end - answer.asked
            self.assertLess(took, NOTICED + SLACK if home[number] == "b" else SLACK)
        waited = [answer.end - answer.asked for answer in answers]
        self.assertGreater(max(waited), 1)  # some did meet it
        print(f"one stands still: {sum(w < 1 for w in waited)} of {len(waited)} answered within a second, the last after "
              f"{max(waited):.1f} s", file=sys.stderr)
        running.signal("b", signal.SIGCONT)
        until(lambda: running.states()["b"] == "UP", "replica b to be back", NOTICED + SLACK)

    def test_all_gone_and_back(self):
        running = self.fleet()
        self.assertEqual(get(BALANCER, "/ready")[0], 200)
        for name in REPLICAS:
            running.signal(name, signal.SIGKILL)
        answer = ask(question(0, False))
        self.assertEqual(answer.status, 503)
        until(lambda: get(BALANCER, "/ready")[0] == 503, "HAProxy to notice", NOTICED + SLACK)
        running.start("c")
        self.assertEqual(ask(question(0, False)).by, "c")

    def test_who_hangs_up_is_forgotten(self):
        running = self.fleet()
        connection = fleet.http.client.HTTPConnection("127.0.0.1", BALANCER)
        body = {**question(0, False), "n": 8}
        connection.request("POST", "/v1/chat/completions", fleet.json.dumps(body), {"x-request-id": "hangs-up"})
        busy = lambda: sum(metric(port, "num_requests_running") for port in REPLICAS.values())
        until(busy, "a replica to be busy")
        connection.close()
        until(lambda: not busy(), "the replica to stop")
        ends = [line.get("finish") for line in running.requests() if line.get("id") == "hangs-up"]
        self.assertEqual(ends, ["client_gone"])


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
