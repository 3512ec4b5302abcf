#!/usr/bin/env python3
"""doppler bench serve against a server that answers as a test tells it, and against doppler serve.

    tests/cli/bench_serve_test.py build/doppler [TEST ...]
"""
import http.server
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = sys.argv.pop(1)
PATIENCE = 120  # seconds for anything to end, on a machine that has other things to do
FIXED = 7  # tokens of a chat template


class Server(http.server.ThreadingHTTPServer):
    """Answers with as many words as tokens were asked for. `plan` may do something else with the n-th request behind
    the two that the program begins with."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, plan=None, usage=True):
        super().__init__(("127.0.0.1", 0), Handler)
        self.plan, self.usage = plan, usage
        self.bodies, self.headers, self.paths = [], [], []
        self.running = self.peak = 0
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def asked(self):
        """The requests behind the first two."""
        return self.bodies[2:]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.server.paths.append(self.path)
        self.reply(200, {"data": [{"id": "first"}, {"id": "second"}]})

    def chunk(self, text):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text.encode()), text.encode()))
        self.wfile.flush()

    def event(self, body):
        self.chunk("data: " + json.dumps(body) + "\n\n")

    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with server.lock:
            number = len(server.bodies) - 2
            server.bodies.append(body)
            server.headers.append(dict(self.headers))
            server.paths.append(self.path)
            server.running += 1
            server.peak = max(server.peak, server.running)
        try:
            if not (number >= 0 and server.plan and server.plan(self, number, body)):
                self.answer(body)
        finally:
            with server.lock:
                server.running -= 1

    def begin(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def answer(self, body, before=0.0, between=0.0):
        chat = "messages" in body
        prompt = body["messages"][0]["content"] if chat else body["prompt"]
        self.begin()
        if chat:
            self.event({"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
        time.sleep(before)
        for i in range(body["max_tokens"]):
            time.sleep(between if i else 0)
            text = {"delta": {"content": " w"}} if chat else {"text": " w"}
            self.event({"choices": [{"index": 0, **text, "finish_reason": None}], "usage": None})
        last = {"delta": {}} if chat else {"text": ""}
        self.event({"choices": [{"index": 0, **last, "finish_reason": "length"}]})
        if self.server.usage:
            words = len(prompt.split())
            self.event({"choices": [], "usage": {"prompt_tokens": FIXED + 2 * words,
                                                 "completion_tokens": body["max_tokens"]}})
        self.chunk("data: [DONE]\n\n")
        self.chunk("")


def call(*arguments):
    return subprocess.run([PROGRAM, "bench", "serve", *arguments], cwd=ROOT, capture_output=True, text=True,
                          timeout=PATIENCE)


def bench(*arguments):
    done = call(*arguments, "--json")
    if done.returncode != 0:
        raise AssertionError(f"exit {done.returncode}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def prompt(body):
    return (body["messages"][0]["content"] if "messages" in body else body["prompt"]).split()


class BenchServe(unittest.TestCase):
    def test_counts_what_it_asked_for(self):
        all_three = threading.Barrier(3)

        def plan(_, number, __):
            if number < 3:
                all_three.wait(PATIENCE)

        with Server(plan) as server:
            result = bench(server.url + "/v1/", "--clients", "3", "--requests", "10", "--prompt-tokens", "87",
                           "--tokens", "5", "--api-key", "secret", "--body", '{"top_p": 0.5, "temperature": 1}')
        self.assertEqual((result["completed"], result["failed"]), (10, 0))
        self.assertEqual(result["total_output_tokens"], 50)
        # Two tokens a word and the template's: found out by asking.
        self.assertEqual(result["total_prompt_tokens"], 10 * 87)
        self.assertEqual({len(prompt(body)) for body in server.asked()}, {40})
        self.assertEqual(result["tokens_counted_by"], "usage")
        # The chunk with the role and the one that ends it are no tokens.
        self.assertEqual(result["itl_ms"]["count"], 10 * 4)
        self.assertEqual(result["ttft_ms"]["count"], 10)
        self.assertEqual(server.peak, 3)
        self.assertEqual(server.paths[0], "/v1/models")
        self.assertEqual(set(server.paths[1:]), {"/v1/chat/completions"})
        for body, headers in zip(server.asked(), server.headers[2:]):
            self.assertEqual((body["model"], body["top_p"], body["temperature"]), ("first", 0.5, 1))
            self.assertTrue(body["stream"] and body["ignore_eos"] and body["stream_options"]["include_usage"])
            self.assertEqual(headers["authorization"], "Bearer secret")

    def test_times_are_those_of_the_stream(self):
        before, between, tokens = 0.08, 0.05, 6

        def slow(handler, _, body):
            handler.answer(body, before, between)
            return True

        with Server(slow) as server:
            result = bench(server.url, "--clients", "2", "--requests", "4", "--tokens", str(tokens),
                           "--slo-ttft-ms", str(1e3 * before / 2))
        # A busy machine makes times longer, never shorter than the server slept; of gaps only the sum is certain.
        self.assertGreaterEqual(result["ttft_ms"]["p50"], 1e3 * before)
        whole = 1e3 * (before + between * (tokens - 1))
        self.assertGreaterEqual(result["e2e_ms"]["p50"], whole)
        spent = result["ttft_ms"]["mean"] + result["tpot_ms"]["mean"] * (tokens - 1)
        self.assertAlmostEqual(result["e2e_ms"]["mean"], spent, delta=1e-6)
        self.assertLessEqual(result["itl_ms"]["mean"] * (tokens - 1), result["e2e_ms"]["mean"] - 1e3 * before + 1e-6)
        # Chunks are not kept back: were they, all of an answer would come at once.
        self.assertGreater(result["itl_ms"]["p50"], 0)
        self.assertLess(result["ttft_ms"]["p50"], result["e2e_ms"]["p50"])
        self.assertEqual(result["request_goodput"], 0)
        self.assertGreaterEqual(result["duration_s"], 2 * whole / 1e3)
        self.assertAlmostEqual(result["output_throughput"] * result["duration_s"], 4 * tokens, delta=1e-6)

    def test_an_open_loop_does_not_wait_for_answers(self):
        everybody = threading.Barrier(20)

        def together(handler, number, body):
            everybody.wait(PATIENCE)  # nobody is answered before the last one has asked
            handler.answer(body)
            return True

        with Server(together) as server:
            result = bench(server.url, "--rate", "400", "--requests", "20", "--tokens", "2")
        self.assertEqual(result["completed"], 20)
        self.assertEqual(server.peak, 20)
        self.assertEqual(result["workload"]["rate"], 400)
        # Twenty gaps of 1/400 s on average, always the same for a seed, and nothing is sent before it is due.
        self.assertGreater(result["duration_s"], 0.01)
        self.assertGreaterEqual(result["late_ms"]["p50"], 0)

    def test_seconds_end_it(self):
        def slow(handler, _, body):
            handler.answer(body, 0.05)
            return True

        with Server(slow) as server:
            result = bench(server.url, "--clients", "2", "--seconds", "0.4", "--tokens", "1")
            self.assertLessEqual(result["completed"], 16)
            self.assertGreaterEqual(result["completed"], 2)
            self.assertEqual(result["completed"], len(server.asked()))
            self.assertGreaterEqual(result["duration_s"], 0.39)

    def test_lengths_and_prefixes(self):
        options = ("--requests", "30", "--prompt-tokens", "27-87", "--tokens", "1-4", "--shared-prefix", "0.5",
                   "--clients", "1", "--endpoint", "completions", "--model", "second")
        with Server() as server, Server() as again, Server() as other:
            bench(server.url, *options)
            bench(again.url, *options)
            bench(other.url, *options, "--seed", "1")
        lengths = {len(prompt(body)) for body in server.asked()}
        self.assertGreaterEqual(min(lengths), 10)
        self.assertLessEqual(max(lengths), 40)
        self.assertGreater(len(lengths), 5)
        self.assertEqual({body["max_tokens"] for body in server.asked()}, {1, 2, 3, 4})
        self.assertEqual({body["model"] for body in server.bodies}, {"second"})
        self.assertNotIn("/v1/models", server.paths)
        longest = max((prompt(body) for body in server.asked()), key=len)
        for words in map(prompt, server.asked()):
            shared = len(words) // 2
            self.assertEqual(words[:shared], longest[:shared])
            self.assertNotEqual(words[shared + 1:shared + 5], longest[shared + 1:shared + 5]) if words != longest else None
        self.assertEqual(server.bodies, again.bodies)
        self.assertNotEqual(server.asked(), other.asked())

    def test_failures_by_kind(self):
        def plan(handler, number, body):
            kind = number % 6
            if kind == 0:
                return False
            if kind == 1:
                handler.reply(429, {"error": {"message": "too many"}})
            elif kind == 2:
                handler.begin()
                handler.event({"error": {"message": "no memory"}})
                handler.chunk("")
            elif kind == 3:  # hangs up within a chunk
                handler.begin()
                handler.wfile.write(b"ff\r\ndata: {")
                handler.wfile.flush()
                handler.connection.shutdown(socket.SHUT_RDWR)
                handler.close_connection = True
            elif kind == 4:
                handler.begin()
                handler.event({"choices": [{"delta": {"content": "x"}}]})
                handler.chunk("")
            else:
                handler.begin()
                handler.chunk("data: oops\n\n")
                handler.chunk("")
            return True

        with Server(plan) as server, Server(plan) as other:
            options = ("--clients", "2", "--requests", "12", "--tokens", "2")
            result = bench(server.url, *options)
            table = call(other.url, *options).stdout
        self.assertEqual((result["completed"], result["failed"]), (2, 10))
        kinds = {kind["kind"]: (kind["count"], kind["example"]) for kind in result["failures"]}
        self.assertEqual(set(kinds), {"HTTP 429", "error in the stream", "connection lost", "cut off", "no JSON"})
        self.assertEqual({count for count, _ in kinds.values()}, {2})
        self.assertEqual(kinds["HTTP 429"][1], "too many")
        self.assertEqual(kinds["error in the stream"][1], "no memory")
        self.assertIn("2 × HTTP 429: too many", table)

    def test_a_request_may_take_too_long(self):
        gone = threading.Event()

        def plan(*_):
            gone.wait(PATIENCE)
            return True

        with Server(plan) as server:
            done = call(server.url, "--clients", "1", "--requests", "1", "--timeout", "0.3", "--json")
            gone.set()
        self.assertEqual(done.returncode, 1)  # nothing was answered
        self.assertEqual(json.loads(done.stdout)["failures"][0]["kind"], "timeout")

    def test_a_server_that_counts_nothing_and_hangs_up_after_each_answer(self):
        def plan(handler, _, body):
            handler.close_connection = True  # unannounced: the client finds its connection closed
            handler.answer(body)
            return True

        with Server(plan, usage=False) as server:
            result = bench(server.url, "--clients", "2", "--requests", "8", "--prompt-tokens", "12", "--tokens", "3")
        self.assertEqual((result["completed"], result["failures"]), (8, []))
        self.assertEqual(result["tokens_counted_by"], "chunks")
        self.assertEqual((result["total_output_tokens"], result["total_prompt_tokens"]), (24, 96))

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder, Server() as server:
            output, plot = pathlib.Path(folder) / "load.json", pathlib.Path(folder) / "load.svg"
            done = call(server.url, "--requests", "3", "--tokens", "4", "--output", str(output), "--plot", str(plot))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(output.read_text())["completed"], 3)
            self.assertIn("time to first token", plot.read_text())
        for words in ("3 answered, 0 failed", "output tok/s", "time to first token", "between tokens", "p99"):
            self.assertIn(words, done.stdout)

    def test_what_is_refused(self):
        def refused(words, *arguments, code=2):
            done = call(*arguments)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(words, done.stdout + done.stderr)

        # 192.0.2.1 is nobody's: it is refused before anything is sent.
        refused("this is a load generator", "http://192.0.2.1:9")
        refused("--remote", "http://192.0.2.1:9")
        refused("speaks no TLS", "https://127.0.0.1:9")
        refused("no number of tokens", "http://127.0.0.1:9", "--tokens", "9-3")
        refused("do not go together", "http://127.0.0.1:9", "--rate", "1", "--clients", "2")
        refused("no JSON object", "http://127.0.0.1:9", "--body", "3")
        refused("0 to 1", "http://127.0.0.1:9", "--shared-prefix", "1.5")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            free = taken.getsockname()[1]
        refused("no connection", f"http://127.0.0.1:{free}", code=3)
        with Server() as server:
            self.assertEqual(bench(server.url.replace("127.0.0.1", "localhost"), "--requests", "1", "--tokens",
                                   "1")["completed"], 1)

    def test_our_own_server(self):
        server = subprocess.Popen([PROGRAM, "serve", "models/tiny", "--port", "0", "--backend", "cpu", "--threads", "1"],
                                  cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            url = server.stdout.readline().strip()
            for endpoint in ("chat", "completions"):
                result = bench(url, "--clients", "2", "--requests", "4", "--prompt-tokens", "48", "--tokens", "6",
                               "--shared-prefix", "0.5", "--endpoint", endpoint)
                self.assertEqual((result["completed"], result["failures"]), (4, []))
                self.assertEqual(result["server"]["model"], "tiny")
                self.assertEqual(result["total_output_tokens"], 4 * 6)
                self.assertAlmostEqual(result["total_prompt_tokens"], 4 * 48, delta=4)
                self.assertEqual(result["tokens_counted_by"], "usage")
            # A question whose answer is short, unless its end is passed over.
            question = {"messages": [{"role": "user", "content": "What color is the sky?"}]}
            tokens = [bench(url, "--requests", "1", "--tokens", "40", "--body", json.dumps(question | more))
                      ["total_output_tokens"] for more in ({}, {"ignore_eos": False})]
            self.assertEqual(tokens[0], 40)
            self.assertLess(tokens[1], 40)
        finally:
            server.terminate()
            server.wait(PATIENCE)
            server.stdout.close()


if __name__ == "__main__":
    unittest.main()
