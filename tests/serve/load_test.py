#!/usr/bin/env python3
"""Crowds at `doppler serve`, and whether it is the same afterwards.

  load_test.py PROGRAM                              some seconds of everything (in ./test)
  load_test.py PROGRAM --clients 64 --seconds 600   one crowd, ten minutes
  load_test.py PROGRAM --hours 2                    crowds, and every model unloaded after each (./test --soak 2)
  load_test.py PROGRAM --backend webgpu --models a=MODEL b=MODEL

A third of the clients hang up at random, some read slowly, some send what is no request. Every answer that ends must be the
one that was computed alone. When a crowd has gone nothing may be left of it: no page of the cache, no file descriptor, no
thread, no buffer of the GPU, no memory. Then SIGTERM among answers that run, which must all end whole, and SIGKILL, after
which a new server answers the same.
"""
import argparse
import atexit
import collections
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PATIENCE = 120  # seconds for anything, on a machine that has other things to do
LONG = "Once upon a time there was a brave little cat who lived in a big house with a red door. " * 6
NEVER_ENDS = {"logit_bias": {"1": -100, "5": -100}}  # models/tiny's tokens that end an answer
SCHEMA = {"type": "json_schema", "json_schema": {"name": "cat", "strict": True, "schema": {
    "type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "maximum": 20, "minimum": 0}},
    "required": ["name", "age"], "additionalProperties": False}}}


def said(question):
    return [{"role": "user", "content": question}]


def kinds():
    """name -> (path, body, what of the answer must be the same). Answers of some kinds are also asked for as streams."""
    chat, openai = "/v1/chat/completions", lambda answer: [[choice.get("message", choice.get("text")), choice["finish_reason"]] for choice in answer["choices"]]
    return {
        "greedy": (chat, {"messages": said("Tell me a story about a brave cat."), "max_tokens": 40, "temperature": 0}, openai),
        "drawn": (chat, {"messages": said("Tell me a story about a dog."), "max_tokens": 60, "temperature": 1, "seed": 7}, openai),
        "several": (chat, {"messages": said("Who are you?"), "max_tokens": 20, "temperature": 0.8, "seed": 3, "n": 3}, openai),
        "long": (chat, {"messages": said(LONG + "What did the cat do?"), "max_tokens": 12, "temperature": 0}, openai),
        "longer": (chat, {"messages": said(LONG * 3 + "Who lived there?"), "max_tokens": 8, "temperature": 1, "seed": 1}, openai),
        "schema": (chat, {"messages": said("A cat as JSON."), "max_tokens": 60, "temperature": 1, "seed": 5, "response_format": SCHEMA}, openai),
        "text": ("/v1/completions", {"prompt": "The color of the sky is", "max_tokens": 16, "temperature": 0, "logprobs": 2},
                 lambda answer: [answer["choices"][0]["text"], answer["choices"][0]["logprobs"]["token_logprobs"]]),
        "messages": ("/v1/messages", {"messages": said("Tell me about a bird."), "max_tokens": 30, "temperature": 1, "top_k": 20},
                     None),  # without a seed: only whole
        "generate": ("/api/generate", {"prompt": "Tell me about a fish.", "stream": False, "options": {"num_predict": 20, "seed": 2, "temperature": 1}},
                     lambda answer: answer["response"]),
        "embedding": ("/v1/embeddings", {"input": ["A red ball", LONG]}, lambda answer: [one["embedding"] for one in answer["data"]]),
    }


HOSTILE = [
    (b'{"messages": [{"role": "user", "content": "cut'), b"[" * 60000, b'{"messages": 7}', b"\x00\xff\xfe", b"",
    json.dumps({"messages": said("x" * 100000)}).encode(), json.dumps({"messages": said("hi"), "max_tokens": -4}).encode(),
    json.dumps({"messages": said("hi"), "model": "no such"}).encode(), json.dumps({"messages": said("hi"), "temperature": 1e400}).encode(),
    json.dumps({"messages": said("hi"), "n": 100000}).encode(), b'{"messages": ' * 1000,
    json.dumps({"messages": said("hi"), "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"allOf": 5}}}}).encode(),
    json.dumps({"messages": said("hi"), "grammar": "root ::= root root | " * 200}).encode(),
]
NO_HTTP = [b"\r\n\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
           b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000]


class Server:
    def __init__(self, program, options, models):
        self.child = subprocess.Popen([program, "serve", *models, "--port", "0", "--log-json", *options], cwd=ROOT, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True)
        self.lines = []
        atexit.register(self.child.kill)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        url = self.child.stdout.readline().strip()
        assert url, "doppler serve ended: " + "\n".join(self.lines)
        self.port = int(url.rsplit(":", 1)[1])

    def read(self):
        for line in self.child.stderr:
            if '"finished"' not in line:  # of those there are too many to keep
                self.lines.append(line.strip())

    def ended(self):
        """The exit code."""
        code = self.child.wait(PATIENCE)
        self.reader.join()
        return code

    def ask(self, path, body, read=lambda response: response.read()):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("POST" if body is not None else "GET", path, body if isinstance(body, bytes | None) else json.dumps(body),
                               {"content-type": "application/json"})
            response = connection.getresponse()
            return response.status, read(response)
        finally:
            connection.close()

    def metrics(self):
        text = self.ask("/metrics", None)[1].decode()
        return {name: float(value) for name, value in re.findall(r"^doppler_(\w+) (\S+)$", text, re.M)}

    def idle(self, at_most=None):
        """What the process has when nothing runs, once that is no more than `at_most`: connections that a client left without
        a word are noticed some seconds later."""
        end = time.monotonic() + PATIENCE
        while True:
            found = self.metrics()
            time.sleep(0.3)  # that connection's end
            proc = pathlib.Path(f"/proc/{self.child.pid}")
            fields = dict(re.findall(r"^(\w+):\s+(\d+)", (proc / "status").read_text(), re.M))
            has = {"memory": int(fields["VmRSS"]) * 1024, "threads": int(fields["Threads"]), "descriptors": len(os.listdir(proc / "fd")),
                   "GPU buffers": found["gpu_buffer_bytes"]}
            left = {name: found[name] for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc") if found[name] != 0}
            left |= {what: (has[what], at_most[what]) for what in has if at_most and what != "memory" and has[what] > at_most[what]}
            if not left:
                return has
            assert time.monotonic() < end, f"nobody asks any more, and there is still {left}"

    def forget_models(self):
        """Waits until --idle-unload has unloaded what was loaded."""
        end = time.monotonic() + PATIENCE
        while sum('"unloaded"' in line for line in self.lines) < sum('"loaded"' in line for line in self.lines):
            assert time.monotonic() < end, "a model that nobody asks is not unloaded"
            time.sleep(0.2)


def stream_text(response, pause=lambda: None):
    text, whole = "", False
    for line in response:
        if line.startswith(b"data: [DONE]"):
            whole = True
        elif line.startswith(b"data: "):
            for choice in json.loads(line[6:])["choices"]:
                text += choice["delta"].get("content") or ""
        pause()
    assert whole, f"a stream ended without [DONE] after {text[-60:]!r}"
    return text


class Crowd:
    def __init__(self, server, expected, models, seed):
        self.server, self.expected, self.models = server, expected, models
        self.random = random.Random(seed)
        self.counts, self.faults, self.lock = collections.Counter(), [], threading.Lock()

    def client(self, seed, until):
        chance = random.Random(seed)
        while time.monotonic() < until and not self.faults:
            what = chance.choices([self.whole, self.stream, self.hang_up, self.hostile, self.no_http], [30, 22, 33, 10, 5])[0]
            try:
                what(chance)
            except Exception as error:  # of any kind: it is reported with what was asked
                with self.lock:
                    self.faults.append(f"{what.__name__}: {error!r}")
                return
            with self.lock:
                self.counts[what.__name__] += 1

    def run(self, clients, seconds):
        until = time.monotonic() + seconds
        threads = [threading.Thread(target=self.client, args=(self.random.random(), until)) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def choose(self, chance, names=None):
        name = chance.choice(names or list(kinds()))
        path, body, part = kinds()[name]
        return name, path, {**body, "model": chance.choice(self.models)}, part

    def whole(self, chance):
        name, path, body, part = self.choose(chance)
        status, answer = self.server.ask(path, body)
        assert status == 200, f"{name}: {status} {answer[:300]}"
        if part:
            got = part(json.loads(answer))
            assert got == self.expected[name], f"{name} is {got}, and alone it was {self.expected[name]}"

    def stream(self, chance):
        name, path, body, part = self.choose(chance, ["greedy", "drawn", "long", "schema"])
        slow = chance.random() < 0.2
        status, text = self.server.ask(path, {**body, "stream": True}, lambda response: stream_text(response, lambda: slow and time.sleep(0.02)))
        assert status == 200 and text == self.expected[name][0][0]["content"], f"{name} is {text!r} as a stream, and alone it was {self.expected[name]}"

    def hang_up(self, chance):
        name, path, body, part = self.choose(chance)
        body = {**body, "stream": chance.random() < 0.5, **({"max_tokens": 400} if "max_tokens" in body else {})}
        text = json.dumps(body).encode()
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE) as connection:
            sent = text[:chance.randrange(len(text))] if chance.random() < 0.1 else text
            connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode() + sent)
            if chance.random() < 0.7:
                time.sleep(chance.random() ** 3)
            elif sent is text:
                connection.settimeout(2)  # an answer that is not streamed may be long
                try:
                    connection.recv(chance.randrange(1, 2000))
                except TimeoutError:
                    pass
            if chance.random() < 0.5:  # a reset in place of an orderly end
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")

    def hostile(self, chance):
        body = chance.choice(HOSTILE)
        status, answer = self.server.ask("/v1/chat/completions", body)
        assert 400 <= status < 500 and "error" in json.loads(answer), f"{status} {answer[:200]} for {body[:80]}"

    def no_http(self, chance):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE) as connection:
            try:
                connection.sendall(chance.choice(NO_HTTP))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass
            except OSError:
                pass  # a reset is an answer, too


def computed_alone(server, model):
    expected = {}
    for name, (path, body, part) in kinds().items():
        status, answer = server.ask(path, {**body, "model": model})
        assert status == 200, f"{name}: {status} {answer}"
        expected[name] = part and part(json.loads(answer))
    return expected


def among_running(server, expected, number, then):
    """So many streams, `then` when all have begun; what became of each: whether it is whole and right."""
    begun, results = threading.Barrier(number + 1), [None] * number

    def client(k):
        def read(response):
            first = response.readline()
            begun.wait(PATIENCE)
            return first, stream_text(response)
        try:
            name = ["drawn", "greedy"][k % 2]
            path, body, part = kinds()[name]
            status, (first, text) = server.ask(path, {**body, "stream": True}, read)
            results[k] = status == 200 and text == expected[name][0][0]["content"] or text
        except Exception as error:  # the connection of a server that was killed
            results[k] = repr(error)
    threads = [threading.Thread(target=client, args=(k,)) for k in range(number)]
    for thread in threads:
        thread.start()
    begun.wait(PATIENCE)
    then()
    for thread in threads:
        thread.join()
    return results


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("program")
    parse.add_argument("--clients", type=int, default=12)
    parse.add_argument("--seconds", type=float, default=4)
    parse.add_argument("--hours", type=float, default=0)
    parse.add_argument("--backend", default="cpu")
    parse.add_argument("--seed", type=int, default=int(time.time()))
    parse.add_argument("--models", nargs="+", default=["a=models/tiny", "b=models/tiny"])
    args = parse.parse_args()
    soak = args.hours > 0
    rounds = max(8, round(args.hours * 3600 / 30)) if soak else 2
    seconds = args.hours * 3600 / rounds if soak else args.seconds
    options = ["--backend", args.backend, "--threads", "2" if soak else "1", "--context", "1024", "--sequences", "16", *(["--idle-unload", "1"] if soak else [])]
    models = [model.split("=")[0] for model in args.models]
    server = Server(args.program, options, args.models)
    expected = computed_alone(server, models[0])
    for model in models[1:]:
        assert computed_alone(server, model) == expected, f"{model} does not answer as {models[0]}: --models are names of the same model"
    if soak:
        server.forget_models()
    before, samples, totals, started = server.idle(), [], collections.Counter(), time.monotonic()
    for k in range(rounds):
        crowd = Crowd(server, expected, models, args.seed + k)
        crowd.run(args.clients, seconds)
        assert not crowd.faults, f"seed {args.seed + k}: " + "\n".join(crowd.faults)
        assert server.child.poll() is None, "the server ended"
        totals += crowd.counts
        if soak:
            server.forget_models()
        samples.append({**server.idle(before), "requests": totals.total()})
        if soak and (k % max(1, rounds // 24) == 0 or k == rounds - 1):
            last = samples[-1]
            print(f"{(time.monotonic() - started) / 60:6.1f} min  {last['requests']:8} requests  {last['memory'] / 2**20:7.1f} MiB  {last['threads']} threads  "
                  f"{last['descriptors']} descriptors  {last['GPU buffers'] / 2**20:.1f} MiB of GPU buffers", flush=True)
    if soak:
        # What a request leaves if it leaves anything is an object of more than half a KiB (a connection's buffers, a request, a
        # sequence); the allocator may keep some pages more than before in each of its arenas.
        quarter = len(samples) // 4
        early, late = samples[quarter:2 * quarter], samples[-quarter:]
        grown = statistics.median(s["memory"] for s in late) - statistics.median(s["memory"] for s in early)
        allowed = 512 * (late[0]["requests"] - early[-1]["requests"]) + (4 << 20)
        print(f"memory grew by {grown / 2**20:.1f} MiB between the second and the last quarter; {allowed / 2**20:.1f} would be a leak")
        assert grown < allowed, f"memory grew by {grown} bytes: {[s['memory'] for s in samples]}"
    print(f"{totals.total()} requests of {args.clients} clients: " + ", ".join(f"{count} {what}" for what, count in sorted(totals.items())))

    ended = among_running(server, expected, 8, lambda: server.child.send_signal(signal.SIGTERM))
    assert ended == [True] * 8, f"SIGTERM lost answers that ran: {ended}"
    assert (code := server.ended()) == 0, f"exit code {code} after SIGTERM: {server.lines[-5:]}"
    server = Server(args.program, options, args.models)
    among_running(server, expected, 8, server.child.kill)
    server.ended()
    server = Server(args.program, options, args.models)
    assert computed_alone(server, models[0]) == expected, "after SIGKILL a new server answers otherwise"
    server.child.terminate()
    assert server.ended() == 0
    print("SIGTERM lost nothing that ran, and after SIGKILL all is as before")


if __name__ == "__main__":
    sys.exit(main())
