"""An import that takes long uses all cores, with the same trials as one process makes, and whole ones when killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from analysis.exchange.records import RECORDS, curve, imported
from processes import wait_for

from core_sdk._analysis.exchange import processes
from core_sdk._analysis.exchange.kinds import find_runs
from core_sdk._analysis.exchange.taking import TakenRun
from core_sdk._home import Home
from core_sdk.errors import CoreSDKError

NUM_POINTS = 100_000
IMPORT = """
import sys
from pathlib import Path
from core_sdk._analysis.exchange import processes
from core_sdk._analysis.exchange.kinds import find_runs
from core_sdk._home import Home

processes.ALONE_S = 0
path = Path(sys.argv[2])
for taken in processes.import_runs(Home.create(Path(sys.argv[1])), path, find_runs(path)):
    print(taken.trial_id, flush=True)
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.create(tmp_path / "home")


@pytest.fixture
def two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ALONE_S", 0)
    monkeypatch.setattr(processes, "num_cpus", lambda: 2)


@pytest.fixture(scope="module")
def long_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs, each of which takes about a second."""
    directory = tmp_path_factory.mktemp("long") / "mlruns"
    lines = "".join(f"{1_700_000_000_000 + step} {1 / (step + 1)} {step}\n" for step in range(NUM_POINTS))
    for number in range(3):
        metrics = directory / "1" / str(number) / "metrics"
        metrics.mkdir(parents=True)
        (metrics.parent / "meta.yaml").write_text(f"run_id: run-{number}\nrun_name: run-{number}\nstatus: 3\n")
        (metrics / "loss").write_text(lines)
    return directory


def imported_by_processes(home: Home, path: Path) -> list[TakenRun]:
    return list(processes.import_runs(home, path, find_runs(path)))


@pytest.mark.usefixtures("two_processes")
@pytest.mark.parametrize("kind", RECORDS)
def test_several_processes_make_the_same_trials(home: Home, kind: str, tmp_path: Path) -> None:
    """Trials have the ids, names, curves and losses that one process gives them; none comes twice."""
    path = RECORDS[kind](tmp_path)
    alone = Home.create(tmp_path / "alone")

    taken, again = imported_by_processes(home, path), imported_by_processes(home, path)

    expected = imported(alone, path)
    assert [(each.trial_id, each.fate, each.run.losses) for each in taken] == [
        (each.trial_id, each.fate, each.run.losses) for each in expected
    ]
    assert {each.fate for each in again} == {"known"}
    for each in expected:
        assert each.trial_id is not None
        here, there = home.folder(each.trial_id), alone.folder(each.trial_id)
        assert here.read_record().name == there.read_record().name
        assert reports_of(home, each.trial_id) == reports_of(alone, each.trial_id)


def reports_of(home: Home, trial_id: int) -> list[bytes]:
    """Returns the lines of a trial's journal but its first, which names the home."""
    return home.folder(trial_id).journal_path(1).read_bytes().splitlines()[1:]


@pytest.fixture
def importing(home: Home, long_runs: Path) -> Iterator[psutil.Process]:
    """An import whose processes have begun with their runs."""
    with subprocess.Popen(
        [sys.executable, "-c", IMPORT, str(home.root), str(long_runs)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        wait_for(lambda: any((home.root / "merging").glob("*/*")))
        yield psutil.Process(process.pid)
        process.kill()


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_processes_end_with_the_import(
    home: Home, long_runs: Path, importing: psutil.Process, sent: signal.Signals
) -> None:
    """However an import ends, none of its processes goes on, trials are whole, and the next import takes the rest."""
    others = importing.children(recursive=True)

    os.kill(importing.pid, sent)

    assert psutil.wait_procs([importing, *others], timeout=30)[1] == []
    before = home.trial_ids()
    taken = imported(home, long_runs)
    assert sum(each.fate == "taken" for each in taken) == 3 - len(before)
    for trial_id in home.trial_ids():
        assert len(curve(home, trial_id, "training", "loss")) == NUM_POINTS


@pytest.mark.usefixtures("two_processes")
def test_an_import_says_that_one_of_its_processes_was_killed(home: Home, long_runs: Path) -> None:
    """The death of a process ends the import with words; started again, it takes what is missing, and nothing twice."""
    taking = processes.import_runs(home, long_runs, find_runs(long_runs))
    known = {child.pid for child in psutil.Process().children(recursive=True)}

    next(taking)
    for child in psutil.Process().children(recursive=True):
        if child.pid not in known and "spawn_main" in " ".join(child.cmdline()):
            child.kill()
    with pytest.raises(CoreSDKError, match="killed"):
        list(taking)

    imported(home, long_runs)
    assert len(home.trial_ids()) == 3


def test_a_process_that_cannot_write_ends_the_import_with_its_error(home: Home, long_runs: Path) -> None:
    """A trial that finds no room leaves nothing; once there is room, the next import takes it."""
    limited = ["sh", "-c", 'ulimit -f 2000; exec "$@"', "sh"]  # 1 or 2 MB for a file; a journal has 10

    ended = subprocess.run(
        [*limited, sys.executable, "-c", IMPORT, str(home.root), str(long_runs)], capture_output=True, check=False
    )

    assert ended.returncode == 1 and b"File too large" in ended.stderr
    assert home.trial_ids() == [] and not (home.root / "merging").exists()
    assert [each.fate for each in imported(home, long_runs)] == ["taken"] * 3
