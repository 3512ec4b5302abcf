#!/usr/bin/env python3
"""docs/scale.md's commands for Slurm, on a Slurm of one node that is made for them: an array answers a file, and what was
cancelled goes on when it is submitted again. And systemd reads the unit for replicas.

    tests/cluster/slurm_test.py build/doppler [TEST ...]

Runs as root in a network of its own (unshare).
"""
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

from fleet import ROOT, commands, until

CONFIG = """ClusterName=doppler
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""
REQUESTS = 400


class Slurm(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in ("state", "spool", "work"):
            (self.folder / name).mkdir()
        host = socket.gethostname().split(".")[0]
        (self.folder / "slurm.conf").write_text(CONFIG.format(host=host, folder=self.folder, cpus=os.cpu_count()))
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"),
                            "PATH": f"{pathlib.Path(PROGRAM).resolve().parent}:{os.environ['PATH']}"}
        self.log = open(self.folder / "log", "wb")
        self.addCleanup(self.log.close)
        self.start("munged", "--foreground", "--force",
                   *(f"--{what}={self.folder}/munge.{end}" for what, end in
                     {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log",
                      "seed-file": "seed"}.items()))
        until((self.folder / "munge.socket").exists, "munged")
        self.start("slurmctld", "-D")
        self.start("slurmd", "-D", "-N", host)
        until(lambda: "idle" in self.slurm("sinfo", "--noheader", "--format=%T"), "the node")
        for name in ("deploy", "models"):
            (self.folder / "work" / name).symlink_to(ROOT / name)

    def start(self, *command):
        process = subprocess.Popen(command, env=self.environment, stdout=self.log, stderr=self.log)
        self.addCleanup(lambda: (process.terminate(), process.wait()))

    def slurm(self, *command):
        return subprocess.run(command, env=self.environment, cwd=self.folder / "work", capture_output=True, text=True,
                              timeout=60).stdout

    def run_documented(self, having):
        done = subprocess.run(["bash", "-euc", commands(having)], env=self.environment, cwd=self.folder / "work",
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)

    def wait(self):
        until(lambda: not self.slurm("squeue", "--noheader").strip(), "all jobs to end")

    def test_array(self):
        asked = [f"request {number}" for number in range(REQUESTS)]
        (self.folder / "work/requests.jsonl").write_text("".join(
            json.dumps({"custom_id": name, "method": "POST", "url": "/v1/completions",
                        "body": {"prompt": f"Once {name}", "max_tokens": 200, "ignore_eos": True}}) + "\n"
            for name in asked))
        answers = self.folder / "work/answers"
        self.run_documented("sbatch --array")
        begun = lambda: [p for p in answers.glob("*.incomplete") if p.stat().st_size > 0]
        until(begun, "some answers")
        self.slurm("scancel", "--name=doppler")
        self.wait()
        whole = set(answers.glob("*.jsonl"))
        self.assertLess(len(whole), 8)
        self.assertTrue(begun())  # what was answered is kept
        self.slurm("sbatch", "--array=1-8", "--cpus-per-task=1", "deploy/slurm/batch.sbatch", "8", "requests.jsonl",
                   "answers", "models/tiny")
        self.wait()
        self.run_documented("for part in")
        lines = (self.folder / "work/answers.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line)["custom_id"] for line in lines], asked)
        self.assertTrue(all(json.loads(line)["response"]["status_code"] == 200 for line in lines))


class Systemd(unittest.TestCase):
    def test_unit(self):
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / "doppler@.service"
            text = (ROOT / "deploy/systemd/doppler@.service").read_text()
            unit.write_text(text.replace("/usr/bin/doppler", str(pathlib.Path(PROGRAM).resolve())))
            verify = ["systemd-analyze", "verify", str(unit)]
            self.assertEqual(subprocess.run(verify, capture_output=True, text=True).stderr, "")
            unit.write_text(text)  # and it does look
            self.assertIn("/usr/bin/doppler", subprocess.run(verify, capture_output=True, text=True).stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
