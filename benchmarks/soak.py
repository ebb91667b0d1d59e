"""A service under load while things go wrong: python benchmarks/soak.py [--minutes 30].

Two processes answer on loopback, with audit and log. Four clients ask without rest, two leave
requests half sent; meanwhile, in turn, a process is killed, the policy is exchanged, and no file
may grow (as on a full disk). At the end the audit is read through. Printed is what was held:
requests, answers that are not in the audit, the chain, times, memory. No clock is stepped.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import dprl
from dprl.apps.serve.audit import read_audit, segments

TOKEN, STATES = "a-token-for-the-soak-only", 20
HEAD = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}


def ask(port: int, name: str, path: str = "/act", body: str = "", wait: float = 30.0):
    """Status and body of one request; None where the connection broke."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=wait)) as line:
        try:
            line.request("POST" if body else "GET", path, body, {**HEAD, "X-Request-ID": name})
            reply = line.getresponse()
            return reply.status, reply.read()
        except (OSError, http.client.HTTPException):
            return None


class Soak:
    """One run; `codes`, `given` and `seconds` are what the clients saw."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port, self.over = folder, port, threading.Event()
        self.codes, self.given, self.seconds = Counter(), set(), []
        world = dprl.envs.care_pathway()
        self.states = list(world.sample(200, seed=0).states)
        for i in (0, 1):
            log = world.sample(1000 + i, seed=i)
            dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log).save(folder / f"{i}.dprl")
        shutil.copy(folder / "0.dprl", folder / "policy.dprl")

    def start(self) -> subprocess.Popen[bytes]:
        """The service, once it is ready."""
        line = [
            sys.executable,
            "-m",
            "dprl",
            "serve",
            "policy.dprl",
            "--port",
            str(self.port),
            "--workers",
            "2",
        ]
        service = subprocess.Popen(
            [*line, "--audit", "audit.jsonl", "--log", "log.jsonl"], cwd=self.folder,
            env={**os.environ, "DPRL_TOKEN": TOKEN},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while (ask(self.port, "start", "/readyz", wait=2) or (0,))[0] != 200:
            time.sleep(0.2)
        return service

    def client(self, who: int) -> None:
        """Ask without rest."""
        for i in itertools.count():
            if self.over.is_set():
                return
            body = json.dumps(
                {"states": [self.states[(i + k) % len(self.states)] for k in range(STATES)]}
            )
            begin, name = time.perf_counter(), f"c{who}-{i}"
            got = ask(self.port, name, body=body)
            self.seconds.append(time.perf_counter() - begin)
            self.codes["broken" if got is None else got[0]] += 1
            if got is None:
                time.sleep(0.05)
            elif got[0] == 200 and len(json.loads(got[1])["answers"]) == STATES:
                self.given.add(name)

    def slow(self) -> None:
        """Send half a request, and wait."""
        while not self.over.is_set():
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), 5) as line,
            ):
                line.sendall(b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n")
                self.over.wait(15)

    def faults(self, service: subprocess.Popen[bytes]) -> None:
        """One fault after the other, with a rest between them."""
        for i in itertools.count():
            for fault in ("kill", "reload", "full"):
                if self.over.wait(4):
                    return
                workers = children(service.pid)
                self.codes[f"fault: {fault}"] += 1
                if fault == "kill" and workers:
                    os.kill(workers[i % len(workers)], signal.SIGKILL)
                elif fault == "reload":
                    shutil.copy(self.folder / f"{(i + 1) % 2}.dprl", self.folder / "next")
                    (self.folder / "next").replace(self.folder / "policy.dprl")
                    service.send_signal(signal.SIGHUP)
                elif fault == "full":
                    for pid in workers:
                        with contextlib.suppress(OSError):
                            resource.prlimit(
                                pid, resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY)
                            )
                    self.over.wait(2)
                    for pid in workers:
                        with contextlib.suppress(OSError):
                            resource.prlimit(
                                pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2
                            )


def children(pid: int) -> list[int]:
    """Processes of the service that answer."""
    own = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(p) for p in own if b"spawn_main" in Path(f"/proc/{p}/cmdline").read_bytes()]


def memory(pid: int) -> float:
    """MiB that the processes of the service hold."""
    total = 0
    for p in (pid, *children(pid)):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{p}/statm").read_text().split()[1]) * resource.getpagesize()
    return total / 2**20


def main() -> None:
    """Run it, and print what was held."""
    asked = argparse.ArgumentParser()
    asked.add_argument("--minutes", type=float, default=30.0)
    asked.add_argument("--port", type=int, default=18377)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="dprl-soak-") as folder:
        soak = Soak(Path(folder), given.port)
        service = soak.start()
        before = memory(service.pid)
        work = [threading.Thread(target=soak.client, args=(who,)) for who in range(4)]
        work += [threading.Thread(target=soak.slow) for _ in range(2)]
        work.append(threading.Thread(target=soak.faults, args=(service,)))
        for thread in work:
            thread.start()
        time.sleep(given.minutes * 60)
        soak.over.set()
        for thread in work:
            thread.join()
        after = memory(service.pid)
        service.terminate()
        service.wait(30)
        audit = Path(folder) / "audit.jsonl"
        facts, kept = read_audit(audit), Counter()
        for file in (*segments(audit), audit):
            for line in file.open("rb"):
                with contextlib.suppress(ValueError):
                    entry = json.loads(line)
                    kept[entry.get("request")] += entry["event"] == "answer"
        times = sorted(soak.seconds)
        print(json.dumps({
            "minutes": given.minutes, "requests": len(times),
            "codes": {str(k): n for k, n in soak.codes.items()},
            "answers given": len(soak.given) * STATES,
            "answers lost": sum(STATES - min(STATES, kept[name]) for name in soak.given),
            "chain holds": facts.ok, "files": facts.files, "lines": facts.lines, "torn": facts.torn,
            "p50 ms": round(1e3 * times[len(times) // 2], 1),
            "p99 ms": round(1e3 * times[int(len(times) * 0.99)], 1),
            "memory MiB": [round(before, 1), round(after, 1)],
        }, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
