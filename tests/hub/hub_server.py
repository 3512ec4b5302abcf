#!/usr/bin/env python3
"""A hub on this machine: two servers, as the Hugging Face hub is two. The hub lists repositories, answers for small
files itself and redirects large ones (LFS) to the second, the CDN, by a signed address.

    hub_server.py ROOT      prints "HUB CDN" (two ports), then serves ROOT/repos/ORG/NAME/FILES until its input ends

ROOT/behaviour.json, read anew for every request, says what goes wrong:
    {"token": "hf_x"}       who has no such token gets 401; {"gated": true}: who has it gets 403
    {"rules": [{"match": "model", "at": "cdn", "do": "status", "status": 503, "headers": {}, "times": 2}, …]}
      status    that answer                          cut        the connection ends after `after` bytes of the body
      short     says it sends `less` bytes fewer     corrupt    one bit is wrong at byte `byte` of the file
      slow      `rate` bytes per second              no_ranges  ranges are ignored
      stall     silent for a minute after `after` bytes
      (any rule may `skip` the first requests, and end after `times`)
      other     another file of `size` bytes is there now
ROOT/log.jsonl gets a line for every request: where, path, range, whether a token came, status, bytes sent.
"""
import hashlib
import http.server
import json
import pathlib
import re
import sys
import threading
import time
import urllib.parse

ROOT = pathlib.Path(sys.argv[1])
LOCK = threading.Lock()
SERVED = {}  # how often a rule was asked
ACTIVE = []  # requests that are being answered


def behaviour():
    try:
        return json.loads((ROOT / "behaviour.json").read_text())
    except FileNotFoundError:
        return {}


def is_lfs(path):
    return path.suffix in (".gguf", ".safetensors", ".bin")


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def git_sha1(path):
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def files_of(repo):
    folder = ROOT / "repos" / repo
    return sorted(path for path in folder.rglob("*") if path.is_file())


def commit_of(repo):
    digest = hashlib.sha1()
    for path in files_of(repo):
        digest.update(str(path).encode() + path.read_bytes())
    return digest.hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    where = "hub"

    def log_message(self, *_):
        pass

    def note(self, status, sent=0):
        line = {"at": self.where, "path": self.path, "range": self.headers.get("Range", ""), "status": status,
                "token": self.headers.get("Authorization", ""), "sent": sent}
        with LOCK, open(ROOT / "log.jsonl", "a") as log:
            log.write(json.dumps(line) + "\n")

    def rules(self):
        for index, rule in enumerate(behaviour().get("rules", [])):
            if rule["match"] not in self.path or rule.get("at", self.where) != self.where:
                continue
            with LOCK:
                key = f"{index}:{json.dumps(rule)}"
                SERVED[key] = SERVED.get(key, 0) + 1
                if not 0 < SERVED[key] - rule.get("skip", 0) <= rule.get("times", 1 << 30):
                    continue
            yield rule

    def refuse(self, status, headers=(), body=b""):
        self.note(status)
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self, data, rules, headers):
        """Bytes, or the range of them that was asked for, spoilt by the rules."""
        begin, end, status = 0, len(data), 200
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        for rule in rules:
            if rule["do"] == "other":
                data = bytes(rule["size"])
                end = len(data)
            if rule["do"] == "corrupt":
                data = data[:rule["byte"]] + bytes([data[rule["byte"]] ^ 4]) + data[rule["byte"] + 1:]
            if rule["do"] == "no_ranges":
                match = None
        if match and self.headers.get("If-Range", headers.get("ETag")) == headers.get("ETag"):
            begin, status = int(match[1]), 206
            end = min(int(match[2]) + 1 if match[2] else end, end)
            if begin >= end:
                return self.refuse(416, {"Content-Range": f"bytes */{len(data)}"})
        body = data[begin:end]
        cut = rate = stall = None
        for rule in rules:
            if rule["do"] == "short":
                body = body[:max(0, len(body) - rule["less"])]
            if rule["do"] == "cut":
                cut = rule["after"]
            if rule["do"] == "stall":
                stall = rule["after"]
            if rule["do"] == "slow":
                rate = rule["rate"]
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        sent = 0
        try:
            step = max(1, rate // 50) if rate else 1 << 16
            while sent < len(body) and (cut is None or sent < cut):
                piece = body[sent:sent + (step if cut is None else min(step, cut - sent))]
                self.wfile.write(piece)
                sent += len(piece)
                if stall is not None and sent >= stall:
                    time.sleep(60)
                if rate:
                    time.sleep(len(piece) / rate)
        except OSError:
            self.close_connection = True
        if cut is not None:
            self.close_connection = True
        self.note(status, sent)

    def do_GET(self):
        if self.path == "/quiet":  # answered when all other requests are in the log
            deadline = time.time() + 20
            while ACTIVE and time.time() < deadline:
                time.sleep(0.002)
            self.send_response(204)
            return self.end_headers()
        ACTIVE.append(self)
        try:
            self.follow()
        finally:
            ACTIVE.remove(self)

    def follow(self):
        rules = list(self.rules())
        for rule in rules:
            if rule["do"] == "status":
                return self.refuse(rule["status"], rule.get("headers", {}))
        path = urllib.parse.unquote(self.path.split("?")[0])
        self.serve(path, rules)

    def serve(self, path, rules):
        wanted = behaviour()
        if wanted.get("token") and self.headers.get("Authorization") != "Bearer " + wanted["token"]:
            return self.refuse(401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        listing = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path)
        resolve = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if not listing and not resolve:
            return self.refuse(404)
        repo, revision = (listing or resolve)[1], (listing or resolve)[2]
        if not files_of(repo):
            return self.refuse(401, {"X-Error-Code": "RepoNotFound"})
        if wanted.get("gated"):
            return self.refuse(403, {"X-Error-Code": "GatedRepo"})
        commit = commit_of(repo)
        if revision not in ("main", commit, "refs/pr/1"):
            return self.refuse(404, {"X-Error-Code": "RevisionNotFound"})
        folder = ROOT / "repos" / repo
        if listing:
            siblings = []
            for file in files_of(repo):
                item = {"rfilename": str(file.relative_to(folder)), "size": file.stat().st_size,
                        "blobId": git_sha1(file)}
                if is_lfs(file):
                    item["lfs"] = {"sha256": sha256(file), "size": file.stat().st_size, "pointerSize": 134}
                siblings.append(item)
            siblings += wanted.get("siblings", [])
            body = json.dumps({"id": repo, "sha": commit, "siblings": siblings}).encode()
            return self.answer(body, rules, {"Content-Type": "application/json"})
        file = folder / resolve[3]
        if not file.is_file():
            return self.refuse(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        if not is_lfs(file):
            return self.answer(file.read_bytes(), rules, {"ETag": f'"{git_sha1(file)}"', "X-Repo-Commit": commit})
        place = urllib.parse.quote(str(file.relative_to(ROOT)))
        self.refuse(302, {"Location": f"http://127.0.0.1:{self.server.cdn}/{place}?Signature=s3cr3t",
                          "X-Repo-Commit": commit, "X-Linked-Size": str(file.stat().st_size),
                          "X-Linked-Etag": f'"{sha256(file)}"'})


class Cdn(Handler):
    where = "cdn"

    def serve(self, path, rules):
        if self.headers.get("Authorization"):  # as storage does with an address that is signed already
            return self.refuse(400)
        file = ROOT / path.lstrip("/")
        if not file.is_file():
            return self.refuse(404)
        self.answer(file.read_bytes(), rules, {"ETag": f'"{sha256(file)[:32]}"'})


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # who asked has gone


servers = [Server(("127.0.0.1", 0), handler) for handler in (Handler, Cdn)]
for server in servers:
    server.cdn = servers[1].server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
print(*(server.server_address[1] for server in servers), flush=True)
sys.stdin.read()
