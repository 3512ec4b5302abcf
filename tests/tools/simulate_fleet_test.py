#!/usr/bin/env python3
"""tools/simulate_fleet.py against what queueing theory and arithmetic say of the same fleets."""
import argparse
import math
import pathlib
import statistics
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tools"))
import simulate_fleet as sim

PREFILL, STEP = sim.Curve([[0, 0.0], [1000, 1.0]]), sim.Curve([[1, 0.01], [11, 0.02]])


def options(**changes):
    plain = {"routing": "robin", "balance_factor": 2.5, "sequences": 32, "piece_ms": 50, "patience": math.inf, "hop_ms": 0,
             "replicas_per_machine": 1, "cores": math.inf, "threads": 1, "cache_tokens": math.inf, "rate": 0,
             "rate_per_node": 1, "burst": (1.0, 60.0, 60.0), "clients": 0, "requests": 100, "seconds": 60,
             "prompt_tokens": (100, 100), "tokens": (11, 11), "shared_prefix": 0, "turns": 1, "think_s": 1, "seed": 0,
             "mtbf_s": 0, "mttr_s": 5, "domain": 1, "detect_s": 0}
    return argparse.Namespace(**{**plain, **changes})


def run(nodes=1, arrivals=None, **changes):
    return sim.simulate(PREFILL, STEP, options(**changes), nodes, arrivals)


class Simulation(unittest.TestCase):
    def test_random_numbers_are_the_engines(self):
        # Salmon et al.'s known answer for key 0, counter 0: the arrivals of a `bench serve` come again.
        self.assertEqual(sim.philox(0, 0), 0x6627E8D5)
        workload = {"seed": 3, "rate": 5, "requests": 20000, "seconds": 0, "prompt_tokens": {"least": 10, "most": 30},
                    "tokens": {"least": 7, "most": 7}}
        arrivals = list(sim.replay({"workload": workload}))
        self.assertEqual((len(arrivals), {a.tokens for a in arrivals}), (20000, {7}))
        self.assertEqual((min(a.prompt for a in arrivals), max(a.prompt for a in arrivals)), (10, 30))
        # Five standard errors of the mean of so many exponential gaps.
        self.assertAlmostEqual(arrivals[-1].arrived / 20000 * 5, 1, delta=5 / math.sqrt(20000))

    def test_one_alone(self):
        # 0.1 s of the prompt, which has the first token, and ten steps of 10 ms.
        got = run(clients=1)
        self.assertAlmostEqual(got["request_throughput"], 1 / 0.2)
        self.assertAlmostEqual(got["ttft_ms"]["p95"], 100)
        self.assertAlmostEqual(got["tpot_ms"]["p50"], 10)

    def test_waiting_for_prompts(self):
        # Answers of one token are a queue with one server and a fixed time (M/D/1), whose mean wait is
        # load / (2 (1 - load)) times that. 20,000 of them, whose waits are alike over a few busy periods: 10 %.
        waits = []
        arrivals = [sim.Request(r.arrived, 100, 1, r.talk) for r in sim.poisson(options(rate=6, seconds=3500), 1)]
        run(arrivals=arrivals)
        waits = [r.first - r.arrived - 0.1 for r in arrivals]
        self.assertGreater(len(waits), 20000)
        self.assertAlmostEqual(statistics.mean(waits) / (0.6 / (2 * 0.4) * 0.1), 1, delta=0.1)

    def test_who_comes_waits_for_the_step(self):
        # The second comes 5 ms into a step of 10 ms; its prompt of 40 ms is in the next, with the first's token.
        arrivals = [sim.Request(0, 100, 11, 0), sim.Request(0.115, 40, 2, 1)]
        run(arrivals=arrivals)
        self.assertAlmostEqual(arrivals[1].first, 0.12 + 0.01 + 0.04)
        # Then both have a token in a step of two; the first goes on alone with the seven that are left of its ten.
        self.assertAlmostEqual(arrivals[1].end, 0.17 + STEP(2))
        self.assertAlmostEqual(arrivals[0].end, 0.17 + STEP(2) + 6 * 0.01)

    def test_long_prompts_come_in_pieces(self):
        # 120 ms in pieces of 50, 50 and 20, each with a token of the one that is answered.
        arrivals = [sim.Request(0, 100, 11, 0), sim.Request(0.1, 120, 2, 1)]
        run(arrivals=arrivals)
        self.assertAlmostEqual(arrivals[1].first, 0.1 + 0.12 + 3 * 0.01 + 0.01, delta=0.010001)

        # With 10 ms for each piece besides, only 40 ms of 50 are the prompt's: three pieces of that.
        arrivals = [sim.Request(0, 100, 11, 0), sim.Request(0.11, 120, 2, 1)]
        sim.simulate(sim.Curve([[0, 0.01], [1000, 1.01]]), STEP, options(), 1, arrivals)
        self.assertAlmostEqual(arrivals[1].first, 0.11 + 3 * (0.05 + 0.01), delta=0.010001)

    def test_replicas_share_a_machines_cores(self):
        one, two, three = (run(nodes=n, clients=4 * n, requests=200 * n, replicas_per_machine=3, cores=2)
                           ["request_throughput"] for n in (1, 2, 3))
        self.assertAlmostEqual(two / one, 2, delta=0.01)
        self.assertAlmostEqual(three / one, 2, delta=0.05)  # the last answers run on fewer replicas than cores

    def test_more_nodes_do_more(self):
        one, many = run(clients=8, requests=800), run(nodes=100, clients=800, requests=80000)
        self.assertAlmostEqual(many["request_throughput"] / one["request_throughput"] / 100, 1, delta=0.02)

    def test_bounded_load(self):
        fleet = sim.Fleet(PREFILL, STEP, options(routing="hash", nodes=10))
        first = fleet.choose(sim.Request(0, 100, 11, 7))
        self.assertIs(fleet.choose(sim.Request(0, 100, 11, 7)), first)
        for number in range(100):
            fleet.arrive(sim.Request(0, 100, 11, 7))  # all of one conversation
        self.assertEqual(first.load, max(node.load for node in fleet.nodes))
        self.assertLessEqual(first.load, math.ceil(2.5 * 100 / 10))

    def test_conversations_find_their_caches(self):
        load = {"nodes": 10, "rate": 2, "seconds": 300, "turns": 6, "prompt_tokens": (64, 64), "tokens": (16, 16)}
        # So little runs that the bound of deploy/haproxy.cfg would be less than one answer: another, to see the ring alone.
        load["balance_factor"] = 100
        hashed, spread = run(routing="hash", **load), run(**load)
        # Turn k has 80 (k - 1) + 64 tokens, and all but the last 64 were there before: whole pages are found, which 80 is
        # a multiple of.
        most = sum(80 * k for k in range(6)) / sum(80 * k + 64 for k in range(6))
        self.assertLessEqual(hashed["prefix_hits"], most + 1e-9)
        self.assertGreater(hashed["prefix_hits"], 0.95 * most)
        # Round robin comes to the node of an earlier turn by chance.
        self.assertLess(spread["prefix_hits"], hashed["prefix_hits"] / 2)
        small = run(routing="hash", cache_tokens=400, **load)
        self.assertLess(small["prefix_hits"], hashed["prefix_hits"] / 2)

    def test_failures_lose_what_had_begun_and_nothing_else(self):
        asked = list(sim.poisson(options(rate=20, seconds=200), 8))
        got = run(nodes=8, arrivals=iter(asked), seconds=200, mtbf_s=40, domain=2)
        self.assertGreater(got["failures"], 5)
        self.assertGreater(got["sent_again"], 0)
        self.assertGreater(got["failed"]["cut"], 0)
        self.assertEqual(got["completed"] + sum(got["failed"].values()), len(asked))
        self.assertTrue(all(r.first is not None for r in asked if r.what in ("cut", "done")))
        self.assertTrue(all(r.first is None for r in asked if r.what == "lost"))

    def test_bursts(self):
        at = [r.arrived for r in sim.poisson(options(rate=50, seconds=600, burst=(4, 60, 10)), 1)]
        inside = sum(t % 60 < 10 for t in at)
        # 100 s of 200 a second and 500 s of 50, five standard deviations of a Poisson count.
        self.assertAlmostEqual(inside, 20000, delta=5 * math.sqrt(20000))
        self.assertAlmostEqual(len(at) - inside, 25000, delta=5 * math.sqrt(25000))

    def test_a_node_is_found_from_its_closed_loops(self):
        def bench(clients, prompt):
            got = run(clients=clients, requests=200, prompt_tokens=(prompt, prompt))
            return {"kind": "serve", "workload": {"clients": clients}, "total_prompt_tokens": 200 * prompt, "total_cached_tokens": 0,
                    "total_output_tokens": 2200, "completed": 200, **got}

        prefill, step = sim.measured_node([bench(1, 50), bench(1, 200), bench(6, 100)], options())
        self.assertAlmostEqual(sim.Curve(prefill)(100), 0.1, delta=0.001)
        self.assertAlmostEqual(sim.Curve(step)(1), 0.01, delta=0.0001)
        # Six take turns with prompts, so what is seen of a step is one of about six: 2 % of it.
        self.assertAlmostEqual(sim.Curve(step)(6) / STEP(6), 1, delta=0.02)

    def test_a_node_is_found_from_a_batch(self):
        rows = [{"sequences": n, "prefill_tok_s": {"median": 1000}, "decode_tok_s": {"median": n / STEP(n)}} for n in (1, 4)]
        prefill, step = sim.measured_node([{"kind": "batch", "workload": {"prompt_tokens": 128}, "batch": rows}], options())
        self.assertAlmostEqual(sim.Curve(prefill)(300), 0.3)
        self.assertAlmostEqual(sim.Curve(step)(2), STEP(2))


if __name__ == "__main__":
    unittest.main()
