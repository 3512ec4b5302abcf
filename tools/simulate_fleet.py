#!/usr/bin/env python3
"""What a fleet of replicas would do: a discrete-event simulation of 1 to 10,000 nodes, whose single node is measured.

    doppler bench serve http://127.0.0.1:8081 --clients 1 --prompt-tokens 64 --tokens 32 --output a.json
    doppler bench serve http://127.0.0.1:8081 --clients 1 --prompt-tokens 256 --tokens 32 --output b.json
    doppler bench serve http://127.0.0.1:8081 --clients 8 --prompt-tokens 64-256 --tokens 32 --output c.json
    tools/simulate_fleet.py a.json b.json c.json --nodes 1,10,100 --rate-per-node 2 --prompt-tokens 64-256 --tokens 32

A node runs steps as src/engine/scheduler.h has them: one token of every answer that runs, and beside them one piece of one
prompt. Measured are the time of a prompt by its length (of one client: time to the first token) and the time of a step by
the answers in it (chosen so that the simulation of the same closed loop has the measured throughput); between two
measurements lies a line. One result of `doppler bench batch` will do, too: without what a server adds. --node FILE takes these numbers from elsewhere: {"prefill": [[tokens, seconds], …], "step":
[[answers, seconds], …]}; --print-node prints what was measured in that form.

What it does not know: networks (--hop-ms is added to every answer's first token), the balancer's own limits, prompts whose
time depends on more than their length, a scheduler of the operating system that is unfair.
"""
import argparse
import bisect
import collections
import heapq
import itertools
import json
import math
import random
import sys

PAGE = 16  # tokens: of a prefix whole pages are found again
MASK = (1 << 64) - 1


def philox(seed, counter):
    """src/engine/random.h's, the first word: with it the arrivals and lengths of a `bench serve` come again."""
    x, keys = [counter & 0xFFFFFFFF, counter >> 32 & 0xFFFFFFFF, 0, 0], [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [b >> 32 ^ x[1] ^ keys[0], b & 0xFFFFFFFF, a >> 32 ^ x[3] ^ keys[1], a & 0xFFFFFFFF]
        keys = [keys[0] + 0x9E3779B9 & 0xFFFFFFFF, keys[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return x[0]


def mix(key):
    """A number that looks random, by splitmix64's last steps."""
    key = key * 0x9E3779B97F4A7C15 & MASK
    key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 & MASK
    key = (key ^ key >> 27) * 0x94D049BB133111EB & MASK
    return key ^ key >> 31


class Curve:
    """Lines between measured points, and the last line beyond them; a single point is a line from zero."""

    def __init__(self, points):
        points = sorted(map(tuple, points))
        if len(points) == 1:
            points = [(0, 0.0), *points]
        self.x, self.y = [p[0] for p in points], [p[1] for p in points]

    def __call__(self, x):
        at = min(max(bisect.bisect_left(self.x, x), 1), len(self.x) - 1)
        x0, x1, y0, y1 = self.x[at - 1], self.x[at], self.y[at - 1], self.y[at]
        return max(y0 + (y1 - y0) * (x - x0) / (x1 - x0), 0.0)


class Request:
    __slots__ = ("arrived", "prompt", "tokens", "talk", "turn", "first", "end", "what", "tries", "found", "state", "known")

    def __init__(self, arrived, prompt, tokens, talk, turn=0, known=0):
        self.arrived, self.prompt, self.tokens, self.talk, self.turn = arrived, prompt, tokens, talk, turn
        self.known = known  # tokens of the prompt that an earlier turn of the same conversation had
        self.first = self.end = None
        self.what = ""  # done, cut (a stream that had begun), refused (waited too long), lost (sent again too often)
        self.tries = self.found = 0


class Node:
    """Time in here is work: seconds that the node would need alone on its cores."""
    __slots__ = ("number", "machine", "up", "load", "waiting", "running", "steps", "prompt", "left", "span", "step", "begun",
                 "work", "seen", "version", "busy", "cached", "held", "kept", "warm", "order", "batch")

    def __init__(self, number, machine):
        self.number, self.machine, self.up, self.load = number, machine, True, 0
        self.version, self.seen, self.work, self.busy = 0, 0.0, 0.0, 0.0
        self.clear()

    def clear(self):
        self.waiting, self.running, self.steps, self.order = collections.deque(), [], 0, 0
        self.prompt, self.left = None, 0.0          # the request whose prompt runs, and seconds of it that are left
        self.span = 0                               # steps until something changes; 0: idle
        self.step, self.begun, self.batch = 0.0, 0.0, 0  # seconds of a step; work at the first; answers in it
        self.cached, self.kept = collections.OrderedDict(), 0  # conversation: tokens, the longest unused first
        self.held, self.warm = 0, False             # tokens of what runs; is the shared prefix in the cache?


class Machine:
    __slots__ = ("nodes", "active")

    def __init__(self):
        self.nodes, self.active = [], 0


class Fleet:
    def __init__(self, prefill, step, options):
        self.prefill, self.step_of, self.o = prefill, step, options
        self.each = prefill(0)                 # seconds of a piece of a prompt, whatever its tokens
        self.page = prefill(PAGE) - self.each  # and of a page of tokens
        machines = [Machine() for _ in range(-(-options.nodes // options.replicas_per_machine))]
        self.nodes = []
        for number in range(options.nodes):
            machine = machines[number // options.replicas_per_machine]
            machine.nodes.append(Node(number, machine))
            self.nodes.append(machine.nodes[-1])
        self.up, self.running_all, self.turn = options.nodes, 0, 0
        self.now, self.events, self.order = 0.0, [], itertools.count()
        self.done, self.cut_work, self.failures = [], 0, 0
        self.on_end = lambda request: None

    def at(self, time, action, *arguments):
        heapq.heappush(self.events, (time, next(self.order), action, arguments))

    def run(self, until=math.inf):
        while self.events and self.events[0][0] <= until:
            self.now, _, action, arguments = heapq.heappop(self.events)
            action(*arguments)

    # Routing: deploy/haproxy.cfg's, round robin, or who has least to do.
    def choose(self, request):
        o, nodes = self.o, self.nodes
        if self.up == 0:
            return None
        if o.routing == "least":
            return min((n for n in nodes if n.up), key=lambda n: n.load)
        if o.routing == "hash":
            # A ring of many points gives each node an equal share, and a node's conversations to all others in equal
            # shares when it is full or gone: the k-th choice of a conversation is any node.
            most = math.ceil(math.ceil(o.balance_factor * (self.running_all + 1)) / self.up)
            for choice in range(64 * len(nodes)):
                node = nodes[mix(request.talk * 0x100001B3 + choice * 0x1F123BB5) % len(nodes)]
                if node.up and node.load < most:
                    return node
        while True:
            node = nodes[self.turn % len(nodes)]
            self.turn += 1
            if node.up:
                return node

    def arrive(self, request):
        node = self.choose(request)
        if node is None:
            return self.end(request, "lost")
        node.load += 1
        self.running_all += 1
        node.waiting.append(request)
        if node.span == 0:
            self.next(node)
        elif node.prompt is None and node.span > 1:
            # Steps of tokens alone: the prompt begins behind the one that runs.
            self.advance(node)
            node.span = min(node.span, max(0, int((node.work - node.begun) / node.step + 1e-9)) + 1)
            self.schedule(node)

    # Machines: those of its nodes that have something to do share its cores equally.
    def speed(self, machine):
        return min(1.0, self.o.cores / (machine.active * self.o.threads)) if machine.active else 1.0

    def advance(self, node):
        if node.span > 0:
            passed = (self.now - node.seen) * self.speed(node.machine)
            node.work += passed
            node.busy += passed
        node.seen = self.now

    def schedule(self, node):
        node.version += 1
        left = node.begun + node.span * node.step - node.work
        self.at(self.now + max(0.0, left) / self.speed(node.machine), self.ended, node, node.version)

    def set_active(self, node, span, step=0.0):
        """The node's next span of equal steps; where it starts or stops working, its neighbours' speed changes."""
        machine, change = node.machine, (span > 0) - (node.span > 0)
        if change and self.o.cores < len(machine.nodes) * self.o.threads:
            for other in machine.nodes:
                self.advance(other)
            machine.active += change
            for other in machine.nodes:
                if other is not node and other.span > 0:
                    self.schedule(other)
        else:
            self.advance(node)
            machine.active += change
        node.span, node.step, node.begun = span, step, node.work
        node.version += 1
        if span > 0:
            self.schedule(node)

    def next(self, node):
        """Chooses the next span, as the engine's scheduler does."""
        o = self.o
        if node.prompt is None:
            while node.waiting and len(node.running) < o.sequences and self.fits(node, node.waiting[0]):
                request = node.waiting.popleft()
                if self.now - request.arrived > o.patience:
                    self.leave(node, request, "refused")
                    continue
                self.begin(node, request)
                break
        answers = len(node.running)
        node.batch = answers
        step = self.step_of(answers) if answers else 0.0
        if node.prompt is not None:
            # So long by the clock, which is less work where the machine's cores are shared; each piece has the cost of a
            # prompt of no tokens besides.
            most = max(o.piece_ms / 1e3 * self.speed(node.machine) - self.each, self.page)
            piece = min(node.left, most) if answers else node.left
            node.left -= piece
            self.set_active(node, 1, step + self.each + piece)
        elif answers:
            self.set_active(node, max(1, node.running[0][0] - node.steps), step)
        else:
            self.set_active(node, 0)

    def fits(self, node, request):
        return node.held == 0 or node.held + request.prompt + request.tokens <= self.o.cache_tokens

    def begin(self, node, request):
        o = self.o
        kept = node.cached.pop(request.talk, 0)
        node.kept -= kept
        found = max(min(kept, request.known), o.shared_prefix * request.prompt if node.warm else 0)
        request.found = min(int(found) // PAGE * PAGE, request.prompt - 1)
        node.warm = True
        node.held += request.prompt + request.tokens
        while node.held + node.kept > o.cache_tokens and node.cached:
            node.kept -= node.cached.popitem(last=False)[1]
        node.prompt, node.left = request, self.prefill(request.prompt - request.found) - self.each

    def ended(self, node, version):
        if version != node.version:
            return
        self.advance(node)
        node.work = node.begun + node.span * node.step
        node.steps += node.span
        request = node.prompt
        if request is not None and node.left <= 1e-12:
            node.prompt = None
            request.first = self.now
            node.order += 1
            heapq.heappush(node.running, (node.steps + request.tokens - 1, node.order, request))
        while node.running and node.running[0][0] <= node.steps:
            request = heapq.heappop(node.running)[2]
            self.release(node, request)
            self.leave(node, request, "done")
        self.next(node)

    def release(self, node, request):
        tokens = request.prompt + request.tokens
        node.held -= tokens
        room = self.o.cache_tokens - node.held
        if request.talk is None or tokens > room:
            return
        node.kept += tokens - node.cached.pop(request.talk, 0)
        node.cached[request.talk] = tokens
        while node.kept > room:
            node.kept -= node.cached.popitem(last=False)[1]

    def leave(self, node, request, what):
        node.load -= 1
        self.running_all -= 1
        self.end(request, what)

    def end(self, request, what):
        request.what, request.end = what, self.now
        self.done.append(request)
        self.on_end(request)

    # Failures: nodes that share a rack, a switch or a pipeline go together.
    def fail(self, domain):
        o = self.o
        self.failures += 1
        for node in self.nodes[domain * o.domain:(domain + 1) * o.domain]:
            self.advance(node)
            begun = [entry[2] for entry in node.running]
            again = ([node.prompt] if node.prompt is not None else []) + list(node.waiting)
            self.set_active(node, 0)
            node.clear()
            node.up = False
            self.up -= 1
            for request in begun:
                self.leave(node, request, "cut")
            for request in again:
                node.load -= 1
                self.running_all -= 1
                request.tries += 1
                if request.tries > 2:
                    self.end(request, "lost")
                else:
                    self.at(self.now + o.detect_s, self.arrive, request)
        self.at(self.now + o.mttr_s, self.repair, domain)

    def repair(self, domain):
        for node in self.nodes[domain * self.o.domain:(domain + 1) * self.o.domain]:
            node.up = True
            self.up += 1
        if self.now < self.o.seconds:
            self.at(self.now + self.random.expovariate(1 / self.o.mtbf_s), self.fail, domain)

    def fail_at_random(self, seed):
        self.random = random.Random(seed)
        for domain in range(-(-len(self.nodes) // self.o.domain)):
            self.at(self.random.expovariate(1 / self.o.mtbf_s), self.fail, domain)


def poisson(o, nodes):
    """Arrivals of a rate that is `burst` times as high for some seconds of each so many; conversations of several turns."""
    rng, rate = random.Random(o.seed), o.rate if o.rate else o.rate_per_node * nodes
    factor, every, lasts = o.burst
    now = 0.0
    for talk in itertools.count():
        now += rng.expovariate(rate * factor)
        if now > o.seconds:
            return
        if now % every >= lasts and rng.random() * factor > 1:
            continue
        yield Request(now, rng.randint(*o.prompt_tokens), rng.randint(*o.tokens), talk)


def replay(result):
    """The arrivals and lengths of an open loop of `bench serve`, whose result this is."""
    w, now = result["workload"], 0.0
    for request in itertools.count():
        u = (philox(w["seed"], request) >> 8) / 2**24
        now -= math.log1p(-u) / w["rate"]
        if (w["requests"] and request >= w["requests"]) or (w["seconds"] and now >= w["seconds"]):
            return
        lengths = [r["least"] + ((r["most"] - r["least"] + 1) * philox(w["seed"], what << 60 | request << 24) >> 32)
                   for what, r in ((1, w["prompt_tokens"]), (2, w["tokens"]))]
        yield Request(now, *lengths, request)


def from_file(path):
    """Lines {"at": seconds, "prompt": tokens, "tokens": tokens, "conversation": number}, the last where it is known."""
    with open(path) as lines:
        rows = sorted((json.loads(line) for line in lines if line.strip()), key=lambda row: row["at"])
    lengths = {}
    for number, row in enumerate(rows):
        talk = row.get("conversation", -1 - number)
        yield Request(row["at"], row["prompt"], row["tokens"], talk, known=lengths.get(talk, 0))
        lengths[talk] = row["prompt"] + row["tokens"]


def percentile(values, p):
    values = sorted(values)
    at = (len(values) - 1) * p / 100
    low = int(at)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (at - low)


def simulate(prefill, step, o, nodes, arrivals=None):
    """One fleet under one load; its figures, defined as those of `bench serve`."""
    o = argparse.Namespace(**{**vars(o), "nodes": nodes})
    fleet = Fleet(prefill, step, o)
    rng = random.Random(o.seed + 1)
    if o.clients:
        left = [o.requests]

        def ask(_=None):
            if left[0] > 0:
                left[0] -= 1
                fleet.arrive(Request(fleet.now, rng.randint(*o.prompt_tokens), rng.randint(*o.tokens), left[0]))

        fleet.on_end = lambda request: fleet.at(fleet.now, ask)
        for _ in range(min(o.clients, o.requests)):
            fleet.at(0.0, ask)
    else:
        source = iter(arrivals if arrivals is not None else poisson(o, nodes))

        def feed():
            request = next(source, None)
            if request is not None:
                fleet.at(request.arrived, lambda: (fleet.arrive(request), feed()))

        def go_on(request):
            if request.what != "done" or request.turn + 1 >= o.turns:
                return
            known = request.prompt + request.tokens
            more = Request(fleet.now + rng.expovariate(1 / o.think_s), known + rng.randint(*o.prompt_tokens),
                           rng.randint(*o.tokens), request.talk, request.turn + 1, known)
            fleet.at(more.arrived, fleet.arrive, more)

        if o.turns > 1:
            fleet.on_end = go_on
        feed()
    if o.mtbf_s:
        fleet.fail_at_random(o.seed + 2)
        fleet.run(o.seconds)
        fleet.events = [event for event in fleet.events if event[2] != fleet.fail]  # what runs may end
        heapq.heapify(fleet.events)
    fleet.run()
    return figures(fleet, o)


def figures(fleet, o):
    done = [r for r in fleet.done if r.what == "done"]
    end = max((r.end for r in fleet.done), default=0.0)
    ttft = [1e3 * (r.first - r.arrived) + o.hop_ms for r in done]
    tpot = [1e3 * (r.end - r.first) / (r.tokens - 1) for r in done if r.tokens > 1]
    of = collections.Counter(r.what for r in fleet.done)

    def spread(values):
        return {f"p{p}": percentile(values, p) if values else 0.0 for p in (50, 90, 95, 99)}

    a_second = 1 / end if end else 0
    return {"nodes": len(fleet.nodes), "duration_s": end, "completed": of["done"],
            "failed": {what: of[what] for what in ("cut", "refused", "lost")}, "failures": fleet.failures,
            "sent_again": sum(r.tries for r in fleet.done),
            "request_throughput": of["done"] * a_second, "output_throughput": sum(r.tokens for r in done) * a_second,
            "ttft_ms": spread(ttft), "tpot_ms": spread(tpot),
            "prefix_hits": sum(r.found for r in done) / max(1, sum(r.prompt for r in done)),
            "busy": sum(n.busy for n in fleet.nodes) * a_second / len(fleet.nodes),
            "busiest": max(n.busy for n in fleet.nodes) * a_second}


def measured_node(results, o):
    """The curves of a node, from closed loops on it alone, or from one `bench batch`."""
    if results[0]["kind"] == "batch":
        rows, prompt = results[0]["batch"], results[0]["workload"]["prompt_tokens"]
        return ([(prompt, prompt / rows[0]["prefill_tok_s"]["median"])],
                [(row["sequences"], row["sequences"] / row["decode_tok_s"]["median"]) for row in rows])
    closed = sorted((r for r in results if r["workload"]["clients"]), key=lambda r: r["workload"]["clients"])
    alone = [r for r in closed if r["workload"]["clients"] == 1]
    if not alone:
        sys.exit("a measurement with --clients 1 is needed: the time to its first token is that of a prompt alone")
    points = collections.defaultdict(list)
    for r in alone:
        tokens = (r["total_prompt_tokens"] - r["total_cached_tokens"]) / r["completed"]
        points[round(tokens)].append(r["ttft_ms"]["p50"] / 1e3)
    prefill = [(tokens, sum(times) / len(times)) for tokens, times in points.items()]
    step = []
    for clients, group in itertools.groupby(closed, key=lambda r: r["workload"]["clients"]):
        group = list(group)
        if clients == 1:
            step.append((1, sum(r["tpot_ms"]["p50"] for r in group) / len(group) / 1e3))
            continue
        step.append((clients, sum(fit_step(r, prefill, step, clients, o) for r in group) / len(group)))
    return prefill, step


def fit_step(result, prefill, step, clients, o):
    """Seconds of a step of so many answers, with which the same closed loop has the measured throughput."""
    prompt = round((result["total_prompt_tokens"] - result["total_cached_tokens"]) / result["completed"])
    tokens = round(result["total_output_tokens"] / result["completed"])
    loop = argparse.Namespace(**{**vars(o), "clients": clients, "requests": max(result["completed"], 10 * clients),
                                 "prompt_tokens": (prompt, prompt), "tokens": (tokens, tokens), "mtbf_s": 0, "hop_ms": 0,
                                 "replicas_per_machine": 1, "cores": math.inf, "shared_prefix": 0, "routing": "robin",
                                 "cache_tokens": math.inf, "patience": math.inf})
    low, high = 0.0, 64 * step[-1][1] * clients / step[-1][0]
    for _ in range(24):
        middle = (low + high) / 2
        got = simulate(Curve(prefill), Curve([*step, (clients, middle)]), loop, 1)["request_throughput"]
        low, high = (middle, high) if got > result["request_throughput"] else (low, middle)
    return (low + high) / 2


def span_of(text):
    least, _, most = text.partition("-")
    return int(least), int(most or least)


def burst_of(text):
    factor, every, lasts = map(float, text.split(":"))
    return factor, every, lasts


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("measured", nargs="*", help="results of `doppler bench serve --clients N --output FILE` on one node, or of "
        "`doppler bench batch`")
    add("--node", help="the node's numbers, in place of measurements")
    add("--print-node", action="store_true", help="print the node's numbers, and simulate nothing")
    add("--nodes", default="1", help="how many, or a list: 1,10,100 (%(default)s)")
    add("--routing", choices=["hash", "robin", "least"], default="hash", help="(%(default)s, deploy/haproxy.cfg's)")
    add("--balance-factor", type=float, default=2.5, help="of hashing: a node has at most so many times the average")
    add("--sequences", type=int, default=32, help="answers that run at once on a node (%(default)s)")
    add("--piece-ms", type=float, default=50, help="that a prompt may add to a step (%(default)s)")
    add("--patience", type=float, default=60, help="seconds after which who waits is refused (%(default)s)")
    add("--hop-ms", type=float, default=0, help="of the network, to the first token and back")
    add("--replicas-per-machine", type=int, default=1)
    add("--cores", type=float, default=math.inf, help="of a machine, which its busy replicas share; 1.8 where others work, too")
    add("--threads", type=float, default=1, help="of a replica")
    add("--cache-tokens", type=float, default=math.inf, help="that a node's cache of keys and values holds")
    load = parser.add_argument_group("load")
    add = load.add_argument
    add("--rate", type=float, default=0, help="requests a second for all nodes together, Poisson")
    add("--rate-per-node", type=float, default=1, help="or for each (%(default)s)")
    add("--burst", type=burst_of, default=(1.0, 60.0, 60.0), metavar="FACTOR:EVERY:FOR",
        help="so many times the rate, every so many seconds, for so many seconds")
    add("--trace", help="arrivals from a file: a line of JSON each, with at, prompt, tokens and perhaps conversation")
    add("--replay", help="the arrivals of this result of `bench serve --rate`")
    add("--clients", type=int, default=0, help="a closed loop in place of a rate")
    add("--requests", type=int, default=1000, help="of the closed loop (%(default)s)")
    add("--seconds", type=float, default=60, help="after which nobody arrives (%(default)s)")
    add("--prompt-tokens", type=span_of, default=(128, 128), help="128, or 64-256 for anything between")
    add("--tokens", type=span_of, default=(128, 128))
    add("--shared-prefix", type=float, default=0, help="the part of each prompt that all have in common")
    add("--turns", type=int, default=1, help="of a conversation; each adds --prompt-tokens to what was said")
    add("--think-s", type=float, default=10, help="between an answer and the next turn, on average (%(default)s)")
    add("--seed", type=int, default=0)
    fail = parser.add_argument_group("failures")
    add = fail.add_argument
    add("--mtbf-s", type=float, default=0, help="seconds between two failures of a domain, on average; 0: none fails")
    add("--mttr-s", type=float, default=120, help="until it serves again, with an empty cache (%(default)s)")
    add("--domain", type=int, default=1, help="nodes that fail together (%(default)s)")
    add("--detect-s", type=float, default=0, help="until what had not begun is sent elsewhere: 0 for a refused connection, "
        "5.2 for one that stands still")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main():
    o = arguments()
    if o.node:
        with open(o.node) as file:
            node = json.load(file)
        prefill, step = node["prefill"], node["step"]
    elif o.measured:
        results = []
        for path in o.measured:
            with open(path) as file:
                results.append(json.load(file))
        prefill, step = measured_node(results, o)
    else:
        sys.exit("give results of `doppler bench serve` on one node, or --node")
    if o.print_node:
        return print(json.dumps({"prefill": prefill, "step": step}))
    rows = []
    for nodes in map(int, o.nodes.split(",")):
        arrivals = None
        if o.trace:
            arrivals = from_file(o.trace)
        elif o.replay:
            with open(o.replay) as file:
                arrivals = replay(json.load(file))
        rows.append(simulate(Curve(prefill), Curve(step), o, nodes, arrivals))
    if o.json:
        return print(json.dumps(rows, indent=1))
    print(f"{'nodes':>6} {'requests/s':>10} {'tokens/s':>10} {'TTFT p50':>9} {'p95':>9} {'p99 ms':>9} {'ms/token':>9} "
          f"{'busy':>6} {'busiest':>7} {'hits':>6} {'done':>8} {'cut':>6} {'refused':>7} {'lost':>5}")
    for r in rows:
        print(f"{r['nodes']:>6} {r['request_throughput']:>10.2f} {r['output_throughput']:>10.1f} {r['ttft_ms']['p50']:>9.1f} "
              f"{r['ttft_ms']['p95']:>9.1f} {r['ttft_ms']['p99']:>9.1f} {r['tpot_ms']['p50']:>9.2f} {r['busy']:>6.1%} "
              f"{r['busiest']:>7.1%} {r['prefix_hits']:>6.1%} {r['completed']:>8} {r['failed']['cut']:>6} "
              f"{r['failed']['refused']:>7} {r['failed']['lost']:>5}")


if __name__ == "__main__":
    main()
