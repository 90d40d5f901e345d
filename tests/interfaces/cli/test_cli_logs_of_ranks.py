"""`core-sdk trial logs --rank N` gives back what one rank wrote, out of the output of all."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interfaces.cli.commands import Cli, StartCli, WriteScript
from interfaces.cli.recorded import new_attempt, new_trial

from core_sdk._home import Home, TrialFolder
from core_sdk._home.logs.ranks import RankFilter
from core_sdk.client import Tracker

LAUNCH = [sys.executable, "-m", "launch.torch_distributed"]
LAUNCHED = (
    b"launching 2 ranks\n"
    b"[rank=0] one\n"
    b"[rank=1] 1%\r[rank=1] 2%\r\n"
    b"[rank=0] \n"
    b"[rank=10] ten\n"
    b"[rank=1] a [rank=0] in the middle\r\n"
    b"the launcher's words\n"
    b"[rank=0] two \xff"
)
OF_RANK_0 = b"one\n\ntwo \xff"
OF_RANK_1 = b"1%\r2%\r\na [rank=0] in the middle\r\n"


@pytest.fixture
def folder(home: Home) -> TrialFolder:
    """A trial of three attempts: without a launcher, with one, and without output."""
    folder = new_trial(home)
    for _ in range(3):
        new_attempt(folder).end()
    folder.log_path(1).write_bytes(b"plain\n[rank of the matrix] 7\n")
    folder.log_path(2).write_bytes(LAUNCHED)
    return folder


def as_bytes(output: str) -> bytes:
    return output.encode(errors="surrogateescape")


@given(log=st.sampled_from([LAUNCHED, LAUNCHED.replace(b"\n", b"\r\n")]), cuts=st.lists(st.integers(0, len(LAUNCHED))))
def test_the_lines_of_a_rank_are_the_same_however_they_are_read(log: bytes, cuts: list[int]) -> None:
    """A rank's lines are the same, whether the log is read in chunks or at once."""
    places = pairwise([0, *sorted(cuts), len(log)])
    in_chunks, at_once = (RankFilter([1], is_launched=True) for _ in range(2))

    given = b"".join(in_chunks.feed(log[start:stop]) for start, stop in places)

    assert given + in_chunks.finish() == at_once.feed(log) + at_once.finish()


def test_the_lines_of_one_rank_come_as_it_wrote_them(folder: TrialFolder, cli: Cli) -> None:
    """`--rank` prints the lines of one rank as written, without the prefix and without the launcher's own lines."""
    of_rank_0 = cli("trial", "logs", "1", "--rank", "0", "--attempt", "2")
    of_rank_1 = cli("trial", "logs", "1", "--rank", "1", "--attempt", "2")

    assert as_bytes(of_rank_0.output) == OF_RANK_0
    # This test reads as a terminal would: each kind of line end is one.
    assert as_bytes(of_rank_1.output).splitlines() == OF_RANK_1.splitlines()


def test_without_a_launcher_all_lines_are_of_rank_0(folder: TrialFolder, cli: Cli) -> None:
    """Without a launcher, all lines belong to rank 0."""
    of_rank_0 = cli("trial", "logs", "1", "--rank", "0")
    of_rank_1 = cli("trial", "logs", "1", "--rank-id", "1", "--attempt", "1")

    assert as_bytes(of_rank_0.output) == b"plain\n[rank of the matrix] 7\n" + OF_RANK_0
    assert (of_rank_1.status, of_rank_1.output) == (1, "")
    assert "Ranks with output: 0." in of_rank_1.errors


def test_several_ranks_keep_their_prefixes(folder: TrialFolder, cli: Cli) -> None:
    """Lines keep their prefixes if several ranks are chosen."""
    ended = cli("trial", "logs", "1", "--rank", "10", "--rank", "0", "--attempt", "2")

    assert as_bytes(ended.output) == b"[rank=0] one\n[rank=0] \n[rank=10] ten\n[rank=0] two \xff"


@pytest.mark.parametrize(("num_lines", "expected"), [(0, b""), (1, b"two \xff"), (2, b"\ntwo \xff"), (9, OF_RANK_0)])
def test_the_tail_counts_the_ranks_own_lines(folder: TrialFolder, cli: Cli, num_lines: int, expected: bytes) -> None:
    """--tail counts only the rank's lines, in the last attempt that has output."""
    ended = cli("trial", "logs", "1", "--rank", "0", "--tail", str(num_lines))

    assert as_bytes(ended.output) == expected


def test_lines_of_ranks_are_read_from_python(home: Home, folder: TrialFolder) -> None:
    """In Python, lines can be filtered by rank, count and text."""
    trial = Tracker(home.root).get_trial(1)

    assert list(trial.iter_logs(rank_ids=[1])) == ["1%\r2%\r\n", "a [rank=0] in the middle\r\n"]
    assert list(trial.iter_logs(rank_ids=[0], head=3)) == ["plain\n", "[rank of the matrix] 7\n", "one\n"]
    assert list(trial.iter_logs(rank_ids=[0], tail=2)) == ["\n", "two \ufffd\n"]
    assert list(trial.iter_logs(rank_ids=[0], search_text="RANK")) == ["[rank of the matrix] 7\n"]
    assert list(trial.iter_logs(rank_ids=(10, 3))) == ["[rank=10] ten\n"]


def test_a_rank_is_followed_to_the_end_of_the_attempt(
    start_cli: StartCli, write_script: WriteScript, cli: Cli, tmp_path: Path
) -> None:
    """--rank with --follow prints a rank's lines until the attempt ends, and the log has each line once."""
    script = write_script(
        """
        import pathlib, subprocess, sys, time
        from core_sdk._machine.processes.output._rank_output import RankOutput

        RANK = "print('started'); input(); print('last words', end='')"

        with RankOutput(pathlib.Path.cwd()) as output:
            ranks = []
            for rank in range(2):
                with open(output.open(rank).stdout_path, "w") as stdout:
                    command = [sys.executable, "-u", "-c", RANK]
                    ranks.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout))
            while not pathlib.Path("go").exists():
                time.sleep(0.01)
            for process in ranks:
                process.communicate(b"\\n")
        """
    )
    run = start_cli("run", "--", sys.executable, str(script))
    run.read_until("[rank=1] started")
    follower = start_cli("trial", "logs", "1", "-f", "--rank", "1")
    follower.read_until("started")

    (tmp_path / "go").touch()
    status, output, errors = follower.wait()
    run.wait()

    assert (status, output, errors) == (0, "last words\n", "")
    assert sorted(cli("trial", "logs", "1").output.splitlines()) == [
        "[rank=0] last words",
        "[rank=0] started",
        "[rank=1] last words",
        "[rank=1] started",
    ]


def test_the_output_of_launched_ranks_is_kept(cli: Cli, write_script: WriteScript, home: Home) -> None:
    """Each line of a launched rank is logged once, and the experiment has the script's name."""
    script = write_script("import os; print('rank', os.environ['RANK'])")

    ended = cli("run", "--", *LAUNCH, "--nproc-per-node=2", "--", "python3", str(script))

    assert ended.status == 0
    assert sorted(cli("trial", "logs", "1").output.splitlines()) == ["[rank=0] rank 0", "[rank=1] rank 1"]
    assert cli("trial", "logs", "1", "--rank", "1").output == "rank 1\n"
    assert Tracker(home.root).get_trial(1).experiment_name == "train.py"
