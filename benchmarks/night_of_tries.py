"""A night of tries: agents that edit, try and wait, while agents, the line's server and trials are killed.

python benchmarks/night_of_tries.py [--tries 40] [--seeds 3] [--agents 4] [--kills 6] [--minutes 600]

Each try is a training of one number, which its hypothesis says, its code holds and its trials report. An agent edits
its script as soon as `core-sdk try --detach` has returned, so that a trial which ran the code of its directory would
report another number. An agent that is killed starts again, and goes on with what it has noted; a `try` may be killed
with it at any moment. At the end each try is compared with its code and its reports.

Wanted: no value beside the wrong code, nothing lost, a board of at most 2 KB within a second, and 1,500 bytes read for
each try.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median

from core_sdk._analysis.studies import read_board
from core_sdk._execution.studies._archived import archived_files
from core_sdk._ground.records import SearcherMetric
from core_sdk._home import Home, open_view
from core_sdk._home.finding.facts import Facts
from core_sdk._home.finding.tries import Try, read_tries, study_of

MOST_WRONG = 0
MOST_LOST = 0
MOST_BOARD_BYTES = 2048
MOST_BOARD_S = 1.0
MOST_READ_BYTES_PER_TRY = 1500

SCRIPT = """\
import random
from core_sdk import core

NUMBER = {number}
with core.init() as context:
    draw = random.Random(context.info.trial.trial_seed)
    for step in (1, 2, 3):
        values = {{"accuracy": 0.8 + draw.gauss(0, 0.01), "number": NUMBER}}
        context.train.report_validation_metrics(step, values)
"""
CLI = [sys.executable, "-m", "core_sdk._interfaces.cli"]
STUDY = "night"
NUM_IN_FLIGHT = 2
"""The number of tries that an agent begins before it waits for the first of them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no try after this time")
    parser.add_argument("--random", type=int, default=0, help="the seed of the kills")
    parser.add_argument("--agent", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.agent is not None:
        be_agent(options.agent, options.agents, options.tries)
        return
    with tempfile.TemporaryDirectory(prefix="core-sdk-night-", ignore_cleanup_errors=True) as directory:
        is_met = Night(Path(directory), options).run()
    print("met" if is_met else "MISSED")
    sys.exit(0 if is_met else 1)


def be_agent(agent: int, num_agents: int, num_tries: int) -> None:
    """Edits, tries and waits, in this directory. It notes what it has done, so that it can be killed at any moment."""
    notes = Path("notes.jsonl")
    known = (
        [json.loads(line) for line in notes.read_text().splitlines() if line.endswith("}")] if notes.exists() else []
    )
    begun = {each["number"]: each["id"] for each in known if "id" in each}
    over = {each["over"] for each in known if "over" in each}
    in_flight = [number for number in begun if number not in over]
    for number in range(1 + agent, 1 + num_tries, num_agents):
        if number in begun:
            continue
        while len(in_flight) >= NUM_IN_FLIGHT:
            await_one(begun, in_flight)
        if Path("../stop").exists():
            break
        Path("train.py").write_text(SCRIPT.format(number=number))
        begun[number] = begin(number)
        note({"number": number, "id": begun[number]})
        in_flight.append(number)
        Path("train.py").write_text(SCRIPT.format(number=-number))  # what runs is a copy
        if number % 10 == 0:
            call("board")
    while in_flight:
        await_one(begun, in_flight)


def begin(number: int) -> int:
    """Begins a try, unless the one that was killed has begun it already. Returns its id."""
    ended = call("try", f"set the number to {number}", "--detach")
    if ended.returncode == 0:
        return int(ended.stdout)
    known = re.search(r"tried as (\d+)", ended.stderr)
    if known is None:
        raise SystemExit(f"try {number} ended with {ended.returncode}: {ended.stderr}")
    return int(known[1])


def await_one(begun: dict[int, int], in_flight: list[int]) -> None:
    number = in_flight[0]
    ended = call("wait", str(begun[number]), "--timeout", "300s")
    if ended.returncode not in (0, 1, 75, 124):
        raise SystemExit(f"wait {number} ended with {ended.returncode}: {ended.stderr}")
    if ended.returncode != 124:
        in_flight.pop(0)
        call("trial", "evidence", str(begun[number]))
        note({"over": number})
        if number % 5 == 0:
            is_better = " better" in ended.stdout
            call("keep" if is_better else "discard", str(begun[number]), "beyond noise" if is_better else "no gain")


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run([*CLI, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    note({"command": arguments[0], "read": len(ended.stdout.encode()) + len(ended.stderr.encode())})
    return ended


def note(what: dict[str, object]) -> None:
    with Path("notes.jsonl").open("a") as file:
        file.write(json.dumps(what) + "\n")


class Night:
    """The agents, and who kills them, the server of the line and trials."""

    def __init__(self, directory: Path, options: argparse.Namespace) -> None:
        self._work = directory / "work"
        self._work.mkdir()
        self._options = options
        self._draw = random.Random(options.random)
        self._home = Home(directory / "home")
        self._kills: Counter[str] = Counter()
        self._agents: dict[int, subprocess.Popen[bytes]] = {}
        os.environ["CORE_SDK_HOME"] = str(self._home.root)

    def run(self) -> bool:
        options = self._options
        begun = ["--metric", "accuracy", "--larger-is-better", "--seeds", str(options.seeds)]
        self._call("study", "begin", STUDY, *begun, "--script", f"{sys.executable} train.py")
        started = time.monotonic()
        for agent in range(options.agents):
            (self._work / f"agent-{agent}").mkdir()
            self._start(agent)
        told = started
        while any(process.poll() != 0 for process in self._agents.values()):
            for agent, process in self._agents.items():
                if process.poll() not in (None, 0):
                    if process.returncode != -signal.SIGKILL:
                        raise SystemExit(f"agent {agent} ended with {process.returncode}")
                    self._start(agent)
            elapsed_s = time.monotonic() - started
            if elapsed_s > 60 * options.minutes:
                (self._work / "stop").touch()
            share = self._num_over() / max(1, options.tries)
            if sum(self._kills.values()) < options.kills * share:
                self._kill()
            if time.monotonic() - told > 60:
                told = time.monotonic()
                print(f"{elapsed_s / 60:.0f} min: {self._num_over()} tries are over, {self._told_kills()}", flush=True)
            time.sleep(0.2)
        self._call("wait", "--timeout", "600s")
        elapsed_s = time.monotonic() - started
        return self._report(elapsed_s)

    def _start(self, agent: int) -> None:
        options = self._options
        told = ["--agent", str(agent), "--agents", str(options.agents), "--tries", str(options.tries)]
        self._agents[agent] = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), *told],
            cwd=self._work / f"agent-{agent}",
            env={**os.environ, "CORE_SDK_AUTHOR": f"agent-{agent}"},
            start_new_session=True,
        )

    def _kill(self) -> None:
        """Kills an agent with its command, the process that serves the line, or the agent of a trial that runs."""
        what = self._draw.choice(["agent", "server", "trial"])
        if what == "agent":
            running = [process for process in self._agents.values() if process.poll() is None]
            if running:
                os.killpg(self._draw.choice(running).pid, signal.SIGKILL)
                self._kills["agents"] += 1
            return
        pids = self._servers() if what == "server" else self._trial_agents()
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(self._draw.choice(pids), signal.SIGKILL)
            self._kills["servers" if what == "server" else "trials"] += 1

    def _servers(self) -> list[int]:
        own = f"CORE_SDK_HOME={self._home.root}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_server = (path / "cmdline").read_bytes().endswith(b"core_sdk._execution.studies\0")
                if is_server and own in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
        return found

    def _trial_agents(self) -> list[int]:
        found = []
        for path in (self._home.root / "tries").glob("*.json"):
            folder = self._home.folder(int(path.stem))
            with contextlib.suppress(OSError, ValueError):
                attempt = folder.running_attempt()
                if attempt is not None:
                    found.append(int(folder.supervised_path(attempt).read_text()))
        return found

    def _notes(self) -> list[dict[str, object]]:
        lines = [line for path in self._work.glob("*/notes.jsonl") for line in path.read_text().splitlines()]
        return [json.loads(line) for line in lines if line.endswith("}")]

    def _num_over(self) -> int:
        return sum("over" in each for each in self._notes())

    def _told_kills(self) -> str:
        return ", ".join(f"{count} {what} killed" for what, count in self._kills.items()) or "nothing killed"

    def _report(self, elapsed_s: float) -> bool:
        notes = self._notes()
        begun = {int(str(each["number"])): int(str(each["id"])) for each in notes if "id" in each}
        read = sum(int(str(each.get("read", 0))) for each in notes)
        with open_view(self._home) as view:
            tries = read_tries(view, 1, SearcherMetric.named("max.accuracy"))
            board = read_board(self._home, view, *study_of(self._home, 1))
        every = list(tries.by_id.values())
        alarmed = {one.try_id for one in board.tries if any("seeds:" in each for each in one.alarms)}
        whole = {one.try_id for one in every if len(one.by_seed) == self._options.seeds}
        failed = {one.try_id for one in every if one.state == "failed"}
        named = {one.try_id for one in every if one.num_missing} | failed
        lost = {try_id for try_id in begun.values() if try_id not in whole | named}
        wrong = [each.row.trial_id for one in every for each in one.trials if not self._is_right(one, each)]
        sizes, times = self._boards()
        per_try = read / max(1, len(every))
        print(
            f"{len(every)} tries of {self._options.seeds} seeds begun, "
            f"in {elapsed_s / 60:.1f} min; {self._told_kills()}"
        )
        print(f"  {len(whole)} with all values, {len(failed)} failed, {len(alarmed)} with fewer seeds and an alarm")
        print(f"  {len(wrong)} trials beside the wrong code {wrong[:5]} (target {MOST_WRONG})")
        print(f"  {len(lost)} lost {sorted(lost)[:5]} (target {MOST_LOST})")
        print(f"  {read:,} bytes read in all, {per_try:,.0f} for each try (target {MOST_READ_BYTES_PER_TRY:,})")
        print(
            f"  the board has {max(sizes):,} bytes, in {median(times):.2f} s "
            f"(targets {MOST_BOARD_BYTES:,}, {MOST_BOARD_S})"
        )
        return (
            len(wrong) <= MOST_WRONG
            and len(lost) <= MOST_LOST
            and per_try <= MOST_READ_BYTES_PER_TRY
            and max(sizes) <= MOST_BOARD_BYTES
            and median(times) <= MOST_BOARD_S
        )

    def _is_right(self, one: Try, trial: Facts) -> bool:
        """Returns whether the hypothesis, the code and what the trial has reported name the same number."""
        number = int(one.row.hypothesis.rpartition(" ")[2])
        code = trial.row.code
        is_own = (
            code is not None and f"NUMBER = {number}\n".encode() in archived_files(self._home, code.sha256)["train.py"]
        )
        return is_own and trial.metric("number") in (None, number)

    def _boards(self) -> tuple[list[int], list[float]]:
        sizes, times = [], []
        for _ in range(5):
            began = time.perf_counter()
            ended = self._call("board", STUDY)
            times.append(time.perf_counter() - began)
            sizes.append(len(ended.stdout.encode()))
        return sizes, times

    def _call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*CLI, *arguments], cwd=self._work, capture_output=True, text=True)


if __name__ == "__main__":
    main()
