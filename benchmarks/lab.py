"""Measures a lab's server: its memory with many pages that are open and idle, and the time of its routes.

    python benchmarks/lab.py --pages 1000
    python benchmarks/page_home.py /tmp/home --trials 10000 && python benchmarks/lab.py --home /tmp/home

`--home` is served as it is, as a workspace. The index is built first, and its time is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import requests

from core_sdk._interfaces.lab.folder import Lab

_DAY_S = 86400.0
_PAGES_OF_A_PERSON = 20
_IDLE_S = 20.0
_PATHS = (
    "home",
    "runs?limit=100",
    "runs?limit=100&sort=-validation.accuracy",
    "runs?limit=100&where=lr%3E0.01",
    "columns",
    "experiments",
    "trials/2",
    "trials/2/attempts",
    "trials/2/metrics",
    "trials/1/metrics",
    "trials/1/logs",
    "checkpoints?trial=2",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=0)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab.create(Path(folder))
        if arguments.home is None:
            lab.add_workspace("w")
        else:
            (lab.root / "workspaces" / "w").symlink_to(arguments.home.resolve())
        people = [f"p{number}" for number in range(max(1, arguments.pages // _PAGES_OF_A_PERSON))]
        for person in people:
            lab.people.set_role("w", person, "reader")
        tokens = [lab.people.issue("token", person, _DAY_S, workspace="w")[0] for person in people]
        command = [sys.executable, "-m", "core_sdk._interfaces.cli", "server", "up", folder, "--listen", "127.0.0.1:0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            try:
                url = server.stdout.readline().strip() if server.stdout is not None else ""
                if arguments.home is not None:
                    measure_routes(f"{url}w/w/api/v1", tokens[0], arguments.repeats)
                if arguments.pages:
                    port = int(url.rstrip("/").rpartition(":")[2])
                    asyncio.run(measure_pages(port, tokens, arguments.pages, server.pid))
            finally:
                server.terminate()


def measure_routes(api: str, token: str, repeats: int) -> None:
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {token}"
    begun = time.perf_counter()
    while session.get(f"{api}/home", timeout=600).json()["reading"] is not None:
        time.sleep(0.5)
    print(f"all records were read after {time.perf_counter() - begun:.0f} s")
    every: list[float] = []
    for path in _PATHS:
        times = []
        for _ in range(repeats):
            begun = time.perf_counter()
            answer = session.get(f"{api}/{path}", timeout=600)
            times.append(1000 * (time.perf_counter() - begun))
            answer.raise_for_status()
        every += times
        figures = f"median {statistics.median(times):6.1f} ms, 95 % within {_p95(times):6.1f} ms"
        print(f"{path:45} {len(answer.content):>10,} bytes, {figures}")
    print(f"95 % of {len(every)} requests were answered within {_p95(every):.0f} ms")


def _p95(times: Sequence[float]) -> float:
    return sorted(times)[int(0.95 * (len(times) - 1))]


async def measure_pages(port: int, tokens: Sequence[str], num_pages: int, pid: int) -> None:
    """Opens as many streams of events as so many pages do, and waits."""
    process = psutil.Process(pid)
    before = process.memory_info().rss
    opened = [await _opened(port, tokens[number % len(tokens)]) for number in range(num_pages)]
    await asyncio.sleep(_IDLE_S)
    after = process.memory_info().rss
    print(f"{num_pages} idle pages: {after / 1e6:.0f} MB of memory, {before / 1e6:.0f} MB before")
    for _, writer in opened:
        writer.close()


async def _opened(port: int, token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /w/w/api/v1/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
    writer.write(head.encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in answer.partition(b"\r\n")[0]:
        raise SystemExit(answer.decode())
    return reader, writer


if __name__ == "__main__":
    main()
