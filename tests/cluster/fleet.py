"""Replicas and their balancer, started by the commands of docs/scale.md, and clients that watch what they answer."""
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BALANCER, STATISTICS = 8080, 8404
REPLICAS = {"a": 8081, "b": 8082, "c": 8083}  # deploy/haproxy.cfg's names
PATIENCE = 120  # seconds for anything, on a machine that has other things to do


def commands(having):
    """The one block of shell in docs/scale.md that has these words."""
    page = (ROOT / "docs/scale.md").read_text()
    blocks = [block for block in re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S) if having in block]
    assert len(blocks) == 1, f"docs/scale.md has {len(blocks)} blocks of shell with {having!r}"
    return blocks[0]


def until(condition, what, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(0.02)


def get(port, path):
    """(status, text); status 0 where nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


def metric(port, name):
    found = re.search(rf"^doppler_{name}(?:{{[^}}]*}})? (\S+)$", get(port, "/metrics")[1], re.M)
    return float(found[1]) if found else 0.0


class Answer:
    """What a client saw of an answer: `text`, `whole` (it ended as it should), and when its head and its end came."""

    def __init__(self, number):
        self.number, self.status, self.text, self.whole, self.by, self.error = number, 0, "", False, "", ""
        self.asked = time.monotonic()
        self.head = self.first = self.end = None  # of a stream: its first text


def ask(body, number="", path="/v1/chat/completions", port=BALANCER):
    answer = Answer(number)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        if number:
            headers["x-request-id"] = number
        connection.request("POST", path, text, headers)
        response = connection.getresponse()
        answer.status, answer.head = response.status, time.monotonic()
        answer.by = response.getheader("x-served-by", "")
        if response.status != 200:
            answer.error = response.read().decode()
        elif response.getheader("content-type", "").startswith("text/event-stream"):
            for line in response:
                line = line.decode().strip()
                if line == "data: [DONE]":
                    answer.whole = True
                elif line.startswith("data: "):
                    for choice in json.loads(line[6:])["choices"]:
                        answer.text += choice["delta"].get("content") or ""
                        if answer.text and not answer.first:
                            answer.first = time.monotonic()
        else:
            whole = json.loads(response.read())
            answer.whole = True
            if "choices" in whole:
                choice = whole["choices"][0]
                answer.text = choice["message"]["content"] if "message" in choice else choice["text"]
    except (OSError, http.client.HTTPException, ValueError) as error:
        answer.error = repr(error)
    finally:
        connection.close()
    answer.end = time.monotonic()
    return answer


def crowd(jobs, clients, during=None):
    """Calls each of `jobs`, so many at once; `during(ended)` in a thread of its own, where ended() counts those that
    have ended. The results in the order of the jobs."""
    results, left, lock, done = [None] * len(jobs), list(range(len(jobs)))[::-1], threading.Lock(), []

    def client():
        while True:
            with lock:
                if not left:
                    return
                job = left.pop()
            results[job] = jobs[job]()
            done.append(job)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    if during:
        threads.append(threading.Thread(target=during, args=(lambda: len(done),)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class Fleet:
    """The commands of docs/scale.md in a folder of their own; `serve` are more options for the replicas, `model` is
    another one, and `balancer` a configuration in place of the one that is documented."""

    def __init__(self, program, folder, serve="", balancer=None, model="models/tiny"):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        for name in ("models", "deploy"):
            (self.folder / name).symlink_to(ROOT / name)
        self.environment = {**os.environ, "PATH": f"{pathlib.Path(program).resolve().parent}:{os.environ['PATH']}"}
        text = commands("haproxy -f").replace("--threads 1", f"--threads 1 {serve}").replace("models/tiny", str(model))
        if balancer:
            (self.folder / "balancer.cfg").write_text(balancer)
            text = text.replace("deploy/haproxy.cfg", "balancer.cfg")
        self.serve_options = re.search(r"doppler serve (.*--threads 1[^&\n]*)", text)[1]
        read, write = os.pipe()
        self.log = open(self.folder / "log", "wb")
        # Job control makes each command a group of its own, which a signal to this script does not reach.
        self.shell = subprocess.Popen(["bash", "-c", f"{text}\njobs -p >&{write}\nwait"],
                                      cwd=self.folder, env=self.environment, stdout=self.log, stderr=self.log,
                                      pass_fds=[write])
        os.close(write)
        with os.fdopen(read) as pids:
            started = [int(pids.readline()) for _ in range(len(REPLICAS) + 1)]
        self.pids = dict(zip([*REPLICAS, "balancer"], started))
        self.again = []
        until(lambda: list(self.states().values()) == ["UP"] * len(REPLICAS), "all replicas to be up")

    def states(self):
        """Of each replica, as HAProxy has it: UP, NOLB (what runs there may end), DOWN."""
        rows = [row.split(",") for row in get(STATISTICS, "/;csv")[1].splitlines()]
        names = dict(zip(rows[0], range(len(rows[0])))) if rows else {}
        return {row[1]: row[names["status"]].split()[0] for row in rows[1:]
                if row[0] == "replicas" and row[1] in REPLICAS and row[names["check_status"]].strip("* ") != "INI"}

    def counter(self, name):
        """A column of HAProxy's statistics about all replicas together."""
        rows = [row.split(",") for row in get(STATISTICS, "/;csv")[1].splitlines()]
        return next(int(row[rows[0].index(name)]) for row in rows if row[:2] == ["replicas", "BACKEND"])

    def signal(self, name, number):
        os.kill(self.pids[name], number)

    def start(self, name):
        options = self.serve_options.replace("$port", str(REPLICAS[name])).split()
        process = subprocess.Popen(["doppler", "serve", *options], cwd=self.folder, env=self.environment,
                                   stdout=self.log, stderr=self.log)
        self.again.append(process)
        self.pids[name] = process.pid
        until(lambda: self.states().get(name) == "UP", f"replica {name} to be up again")

    def alive(self, name):
        try:
            os.kill(self.pids[name], 0)
            return pathlib.Path(f"/proc/{self.pids[name]}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except (ProcessLookupError, FileNotFoundError):
            return False

    def requests(self):
        """The lines of all replicas' logs about requests: a list of key to value."""
        self.log.flush()
        lines = (self.folder / "log").read_text(errors="replace").splitlines()
        return [dict(word.split("=", 1) for word in line.split()[1:] if "=" in word) for line in lines
                if " path=/" in line]

    def stop(self):
        if self.log.closed:
            return
        for name in self.pids:
            for number in (signal.SIGCONT, signal.SIGKILL):
                if self.alive(name):
                    self.signal(name, number)
        self.shell.wait()
        for process in self.again:
            process.wait()
        self.log.close()
