"""Latency and throughput of `dprl serve` on loopback, for labels and for 100,000 points.

Single states come in an open loop: requests leave at fixed times whatever became of those before,
so a slow answer is not hidden by a client that waits for it. Throughput is a closed loop of four
connections. Client and server share the machine's cores; asking /healthz in the same way, in turns
with the rest, tells how much of the time is the machine's and the client's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

import dprl

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "tabular"))

from run import stamp

from continuous import RAW, log_of, mixture

MAIN = "from dprl.apps.cli.main import main; main()"
CONNECTIONS = 16


def policies(folder: Path, points: int) -> dict[str, list[bytes]]:
    """Two policy files, and bodies to ask them with: one state each."""
    rooms = dprl.envs.rooms().sample(500, seed=0)
    dprl.DPRLDiscrete(n_min=20, gamma=0.99, cut="terminal").fit(rooms).save(folder / "labels.dprl")
    x = mixture(points)
    log = log_of(x)
    learner = dprl.DPRLContinuous(n_min=5, radius=3.0, gamma=0.99, metric=RAW, plan=False)
    learner.fit(log).save(folder / "points.dprl")
    rng = np.random.default_rng(5)
    near = x[rng.integers(len(x), size=2000)] + 0.1 * rng.normal(size=(2000, x.shape[1]))
    near = np.clip(near, log.features.min(axis=0), log.features.max(axis=0))
    states = [dict(zip(log.feature_names, row, strict=True)) for row in near.tolist()]
    labels = [rooms.states[i] for i in rng.integers(len(rooms.states), size=2000)]
    return {
        "labels": [json.dumps({"states": [s]}).encode() for s in labels],
        "points": [json.dumps({"states": [s]}).encode() for s in states],
    }


class Client:
    """A few kept connections, each with one request under way at most."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self.host, self.port = host, port
        self.head = (
            f"Host: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        )
        self.free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]

    async def open(self, n: int) -> None:
        self.free = asyncio.Queue()
        for _ in range(n):
            self.free.put_nowait(await asyncio.open_connection(self.host, self.port))

    async def ask(self, body: bytes) -> None:
        reader, writer = await self.free.get()
        what = "POST /act" if body else "GET /healthz"
        writer.write(f"{what} HTTP/1.1\r\n{self.head}{len(body)}\r\n\r\n".encode() + body)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
        await reader.readexactly(length)
        self.free.put_nowait((reader, writer))


async def open_loop(client: Client, bodies: list[bytes], rate: float, seconds: float) -> np.ndarray:
    """Seconds from the time each request was due to its answer."""
    await client.open(CONNECTIONS)
    loop = asyncio.get_running_loop()
    begin, n = loop.time() + 0.2, int(rate * seconds)
    waited = np.empty(n)

    async def one(i: int) -> None:
        due = begin + i / rate
        await asyncio.sleep(due - loop.time())
        await client.ask(bodies[i % len(bodies)])
        waited[i] = loop.time() - due

    await asyncio.gather(*(one(i) for i in range(n)))
    return waited


async def closed_loop(client: Client, bodies: list[bytes], seconds: float) -> float:
    """Requests a second with four connections that never rest."""
    await client.open(4)
    done, end = 0, time.perf_counter() + seconds

    async def worker(first: int) -> None:
        nonlocal done
        i = first
        while time.perf_counter() < end:
            await client.ask(bodies[i % len(bodies)])
            done, i = done + 1, i + 4

    await asyncio.gather(*(worker(k) for k in range(4)))
    return done / seconds


class Server:
    """A policy being served."""

    def __init__(self, policy: Path) -> None:
        command = [sys.executable, "-c", MAIN, "serve", str(policy), "--port", "0", "--json"]
        begin = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        facts = json.loads(self.process.stdout.readline())
        while True:
            try:
                urllib.request.urlopen(f"{facts['url']}/healthz").read()
                break
            except urllib.error.HTTPError:
                time.sleep(0.05)
        self.ready = time.perf_counter() - begin
        host, port = facts["url"].removeprefix("http://").split(":")
        self.where = (host, int(port), Path(facts["token_file"]).read_text())

    def waits(self, bodies: list[bytes], rate: float, seconds: float) -> np.ndarray:
        return 1000 * asyncio.run(open_loop(Client(*self.where), bodies, rate, seconds))

    def spent(self) -> float:
        """Seconds of processor time it has used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def most(self, bodies: list[bytes], seconds: float) -> float:
        return asyncio.run(closed_loop(Client(*self.where), bodies, seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bodies = policies(folder, args.points)
        servers = {kind: Server(folder / f"{kind}.dprl") for kind in bodies}
        what = {
            "nothing (/healthz)": (servers["labels"], [b""]),
            "100 labels (rooms)": (servers["labels"], bodies["labels"]),
            f"{args.points:,} points, 16 features": (servers["points"], bodies["points"]),
        }
        waits: dict[str, list[np.ndarray]] = {w: [] for w in what}
        most: dict[str, list[float]] = {w: [] for w in what}
        cpu: dict[str, list[float]] = {w: [] for w in what}
        try:
            for _ in range(args.repeats):
                for w, (server, asked) in what.items():
                    server.waits(asked, args.rate, 1)
                    before = server.spent()
                    waits[w].append(server.waits(asked, args.rate, args.seconds))
                    cpu[w].append(1000 * (server.spent() - before) / len(waits[w][-1]))
                    most[w].append(server.most(asked, args.seconds / 4))
        finally:
            for server in servers.values():
                server.process.terminate()
                server.process.wait()
    rows = []
    for w, (server, _) in what.items():
        p50, p99, p999 = np.quantile(waits[w], [0.5, 0.99, 0.999], axis=1)
        rows.append(
            f"| {w} | {p50.min():.2f} / {np.median(p50):.2f} | {p99.min():.2f} / "
            f"{np.median(p99):.2f} | {p999.min():.2f} / {np.median(p999):.2f} | "
            f"{min(cpu[w]):.2f} | {max(most[w]):,.0f} | {server.ready:.1f} |"
        )
    load = os.getloadavg()[1]
    lines = [
        f"{stamp()} {args.rate:.0f} requests a second for {args.seconds:.0f} s, "
        f"{args.repeats} times in turns; best / median run. Load average: {load:.1f}.",
        "",
        "| policy | p50 ms | p99 ms | p99.9 ms | processor ms | most/s | ready s |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ]  # fmt: skip
    text = "\n".join(lines) + "\n"
    print(text)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
