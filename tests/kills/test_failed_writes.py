"""Every call by which a save, a deletion or a collection changes the disk, failed in turn.

Whatever is acknowledged is listed and whole, whatever is listed or visible is whole, and what a failed save has left
is neither.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from interfaces.cli.recorded import new_attempt, new_trial, store
from parts import needs, strace
from saving import checkpoint_ids

from core_sdk._home import Home
from core_sdk._home.deletion.collection import Request, collect
from core_sdk._home.history import read_history
from core_sdk._home.storage import DirectoryStorage
from core_sdk.core import init

pytestmark = needs("strace")

CALLS = (
    "write", "writev", "pwrite64", "sendfile", "copy_file_range", "ftruncate", "fsync", "fdatasync", "openat", "mkdir",
    "mkdirat", "rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "rmdir", "chmod", "fchmod",
)  # fmt: skip
SAMPLE = 8
TIMEOUT_S = 120

PREAMBLE = """
import sys, traceback
from pathlib import Path
from core_sdk import core
from core_sdk._home.storage import DirectoryStorage
from core_sdk._home import Home
from core_sdk._home.deletion.collection import Request, collect

def attempt(call):
    try:
        return call()
    except Exception:
        traceback.print_exc()

def save(context, steps_completed, **options):
    with context.checkpoint.store_path({"steps_completed": steps_completed}, **options) as (path, storage_id):
        (path / "sub").mkdir()
        (path / "sub" / "model.bin").write_bytes(b"weights")
        (path / "optimizer.bin").write_bytes(b"state")
    context.checkpoint.wait()
    print("stored", storage_id, flush=True)
    return storage_id
"""
SAVES = """
def train():
    with core.init(name="saves") as context:
        for steps_completed in (1, 2):
            attempt(lambda: save(context, steps_completed, OPTIONS))
attempt(train)
"""
SCENARIOS = {
    "save": SAVES.replace("OPTIONS", ""),
    "sharded save": SAVES.replace("OPTIONS", "shard=True"),
    "background save": SAVES.replace("OPTIONS", "wait=False"),
    "upload": """
def train():
    with core.init(name="saves") as context:
        source = Path("source")
        source.mkdir()
        (source / "model.bin").write_bytes(b"weights")
        print("stored", context.checkpoint.upload(source, {"steps_completed": 1}), flush=True)
attempt(train)
""",
    "deletion": """
def train():
    with core.init(name="saves") as context:
        first, second = save(context, 1), save(context, 2)
        print("deleting", first, flush=True)
        attempt(lambda: context.checkpoint.delete(first))
attempt(train)
""",
    "partial deletion": """
def train():
    with core.init(name="saves") as context:
        first, second = save(context, 1), save(context, 2)
        attempt(lambda: context.checkpoint.delete(first, ["sub"]))
attempt(train)
""",
    "collection": """
home = Home.open(Path(sys.argv[1]))
for storage_id in ("a", "b"):
    print("deleting", storage_id, flush=True)
attempt(lambda: collect(home, Request(policy={"save_trial_best": 0, "save_trial_latest": 1})))
""",
}


class Call(NamedTuple):
    """The n-th call of a kind in its thread."""

    name: str
    nth: int


class Ending(NamedTuple):
    """What a run has said."""

    stored: list[str]
    deleting: list[str]
    errors: str


class Stage:
    """A folder with a home, in which a scenario is run, under strace."""

    def __init__(self, folder: Path, scenario: str) -> None:
        self.folder = folder
        self.home = Home(folder / "home")
        self._script = PREAMBLE + SCENARIOS[scenario]
        folder.mkdir()
        Home.create(self.home.root)
        training = new_attempt(new_trial(self.home))
        for number, storage_id in enumerate(("a", "b", "c"), start=1):
            store(training, storage_id, number)
        training.end()

    def run(self, *strace_options: str) -> Ending:
        trace = self.folder / "trace"
        command = strace("--seccomp-bpf", "-y", *strace_options, trace=trace)
        environment = os.environ | {"CORE_SDK_HOME": str(self.home.root), "PYTHONDONTWRITEBYTECODE": "1"}
        finished = subprocess.run(
            [*command, sys.executable, "-c", self._script, str(self.home.root)],
            capture_output=True, text=True, timeout=TIMEOUT_S, cwd=self.folder, env=environment,
        )  # fmt: skip
        said = [line.split() for line in finished.stdout.splitlines()]
        return Ending(
            [words[1] for words in said if words[:1] == ["stored"]],
            [words[1] for words in said if words[:1] == ["deleting"]],
            finished.stderr,
        )

    def calls(self) -> list[Call]:
        """Returns the system calls that change something in the home."""
        self.run("-e", f"trace={','.join(CALLS)}")
        counts: Counter[tuple[str, str]] = Counter()
        found: dict[Call, None] = {}
        for line in (self.folder / "trace").read_text(errors="replace").splitlines():
            if match := re.match(r"(\d+)\s+(\w+)\(", line):
                thread, name = match.groups()
                counts[thread, name] += 1
                if str(self.home.root) in line and (name != "openat" or "O_CREAT" in line):
                    found[Call(name, counts[thread, name])] = None
        return list(found)

    def check(self, ending: Ending) -> None:
        storage = DirectoryStorage(self.home.checkpoints)
        listed = set(self._listed())
        assert set(ending.stored) - set(ending.deleting) <= listed
        assert {"a", "b", "c"} - set(ending.deleting) <= listed
        for storage_id in listed | set(checkpoint_ids(storage)):
            storage.verify(storage_id)
        assert set(checkpoint_ids(storage)) <= listed | set(ending.deleting)

        whole = {storage_id for storage_id in listed if not storage.manifest(storage_id).removed}
        collect(self.home, Request(policy={"save_trial_best": 0, "save_trial_latest": 9}))
        with init(checkpoint_storage=str(storage.root)):
            pass

        assert whole <= set(self._listed())
        assert checkpoint_ids(storage) == sorted(self._listed())
        assert list((storage.root / ".staging").iterdir()) == []

    def _listed(self) -> Iterator[str]:
        for trial_id in self.home.trial_ids():
            yield from (found.record.storage_id for found in read_history(self.home.trial(trial_id)).checkpoints)


def fail_each(folder: Path, scenario: str, error: str, calls: list[Call]) -> None:
    def fail(call: Call) -> str | None:
        stage = Stage(folder / f"{call.name}-{call.nth}-{error}", scenario)
        ending = stage.run("-e", f"trace={call.name}", "-e", f"inject={call.name}:error={error}:when={call.nth}")
        try:
            stage.check(ending)
        except Exception as problem:  # noqa: BLE001
            return f"{call} {error}: {type(problem).__name__}: {problem}\n{ending}\n"
        shutil.rmtree(stage.folder)
        return None

    with ThreadPoolExecutor(2) as pool:
        problems = [problem for problem in pool.map(fail, calls) if problem is not None]

    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_few_failed_writes(tmp_path: Path, scenario: str) -> None:
    """A sample of failed writes (EIO), another one for each number of calls, loses no acknowledged checkpoint."""
    calls = Stage(tmp_path / "counted", scenario).calls()

    fail_each(tmp_path, scenario, "EIO", random.Random(len(calls)).sample(calls, SAMPLE))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_failed_write(tmp_path: Path, scenario: str, error: str) -> None:
    """Whichever write to the home fails, on a broken disk or a full one, no acknowledged checkpoint is lost."""
    calls = Stage(tmp_path / "counted", scenario).calls()

    fail_each(tmp_path, scenario, error, calls)
