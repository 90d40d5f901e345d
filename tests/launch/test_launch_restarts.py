"""torchrun's elasticity under our supervision: restarts, several nodes, nodes that come later."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from launches import RunLaunch, StartLaunch, WarmLaunchers
from processes import wait_for

_PROLOGUE = """\
import os, sys, time
rank = int(os.environ["RANK"])
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
"""


def test_a_restart_is_told_and_begins_afresh(run_launch: RunLaunch) -> None:
    """A restart is announced with the failed rank, and the ranks meet at a new place."""
    source = _PROLOGUE + "print(os.environ['CORE_SDK_RENDEZVOUS'])\nif attempt == 0 and rank == 1: sys.exit(3)"

    ended = run_launch(source, overrides=["--max-restarts=2"])

    places = {line.split()[1] for line in ended.stdout.splitlines()}
    assert ended.code == 0
    assert len(places) == 2
    assert ended.stderr.startswith("[core-sdk] rank 1 (pid ")
    assert ended.stderr.endswith(") exited with status 3; attempt 2 of 3 begins\n")


def test_the_last_restart_gives_the_code(run_launch: RunLaunch) -> None:
    """The exit code is the last attempt's, and earlier failures are announced."""
    ended = run_launch(_PROLOGUE + "sys.exit(10 + attempt if rank == 0 else 0)", overrides=["--max-restarts=2"])

    assert (ended.failure.rank, ended.code) == (0, 12)
    assert "attempt 2 of 3 begins" in ended.stderr
    assert "attempt 3 of 3 begins" in ended.stderr


def test_nothing_is_restarted_after_a_stop(start_launch: StartLaunch) -> None:
    """After a stop, ranks are not restarted."""
    launch = start_launch(_PROLOGUE + "print('ready'); time.sleep(120)", overrides=["--max-restarts=5"])
    launch.read_until("[rank=0] ready", "[rank=1] ready")

    launch.send(signal.SIGTERM)

    ended = launch.wait()
    assert ended.code == 143
    assert ended.stdout.count("ready") == 2


def test_a_stop_of_an_earlier_start_does_not_colour_the_end(run_launch: RunLaunch) -> None:
    """The mark of an acknowledged stop belongs to the start in which it was made."""
    mark = "open(os.path.join(os.environ['CORE_SDK_LAUNCH_DIR'], 'stopped'), 'w').close()"
    source = _PROLOGUE + f"if attempt == 0:\n    {mark}\n    sys.exit(3)"

    ended = run_launch(source, overrides=["--max-restarts=1"])

    assert ended.code == 0


def test_launches_on_one_machine_do_not_clash(warm_launchers: WarmLaunchers, launch_directory: Path) -> None:
    """Four launches on one machine at once do not affect each other."""
    source = _PROLOGUE + "print(os.environ['MASTER_PORT'], os.environ['CORE_SDK_RENDEZVOUS'])\ntime.sleep(1)"

    launches = [warm_launchers.start(launch_directory / str(n), source, (), 2, ()) for n in range(4)]

    ended = [launch.wait() for launch in launches]
    assert [end.code for end in ended] == [0] * 4
    assert all(len({line.split(" ", 1)[1] for line in end.stdout.splitlines()}) == 1 for end in ended)
    assert len({end.stdout.splitlines()[0] for end in ended}) == 4


def _two_nodes(port: int) -> list[list[str]]:
    """Returns the overrides of two nodes on this machine."""
    common = ["--nnodes=2", "--master-addr=localhost", f"--master-port={port}", "--local-addr=localhost"]
    return [[*common, f"--node-rank={rank}"] for rank in range(2)]


def test_a_rank_that_fails_on_one_node_ends_the_others_too(
    warm_launchers: WarmLaunchers, launch_directory: Path, free_port: int
) -> None:
    """A failing rank ends the ranks of other nodes, and all launchers name it and exit with its code."""
    source = _PROLOGUE + "if rank == 3: sys.exit(17)\ntime.sleep(120)"
    starts = zip(("a", "b"), _two_nodes(free_port), strict=True)

    launches = [warm_launchers.start(launch_directory / name, source, (), 2, overrides) for name, overrides in starts]

    ended = [launch.wait() for launch in launches]
    assert [end.code for end in ended] == [17, 17]
    assert [end.failure.rank for end in ended] == [3, 3]
    assert "another node's launcher says" in ended[0].stderr


def test_a_node_that_only_suffers_names_the_rank_that_failed_elsewhere(
    warm_launchers: WarmLaunchers, launch_directory: Path, free_port: int
) -> None:
    """A node whose ranks only lost their peers names the rank that failed on another node."""
    shared = str(launch_directory / "failing")
    source = (
        _PROLOGUE
        + f"""
if rank == 1:
    open({shared!r}, "w").close()
    time.sleep(1)
    os._exit(17)
while not os.path.exists({shared!r}):
    time.sleep(0.01)
raise RuntimeError("gloo: Connection closed by peer")
"""
    )
    starts = zip(("a", "b"), _two_nodes(free_port), strict=True)

    launches = [warm_launchers.start(launch_directory / name, source, (), 1, overrides) for name, overrides in starts]

    assert [(end.code, end.failure.rank) for end in (launch.wait() for launch in launches)] == [(17, 1), (17, 1)]


def test_nodes_may_come_later(warm_launchers: WarmLaunchers, launch_directory: Path, free_port: int) -> None:
    """With --nnodes=1:2 a later node joins, and the ranks start again without using up a restart."""
    source = _PROLOGUE + "print('of', os.environ['WORLD_SIZE'])\nwhile os.environ['WORLD_SIZE'] == '1': time.sleep(0.1)"
    overrides = ["--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{free_port}", "--rdzv-id=later"]
    overrides += ["--rdzv-conf=last_call_timeout=1", "--local-addr=localhost"]
    first = warm_launchers.start(launch_directory / "a", source, (), 1, overrides)
    first.read_until("[rank=0] of 1")

    second = warm_launchers.start(launch_directory / "b", source, (), 1, overrides)

    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(lambda launch: launch.wait(), (first, second)))
    assert [end.code for end in ended] == [0, 0]
    assert "of 2" in ended[0].stdout
    assert "of 2" in ended[1].stdout


def test_a_restart_that_one_node_needs_is_counted_by_all_ranks(
    warm_launchers: WarmLaunchers, launch_directory: Path, free_port: int
) -> None:
    """A restart on one node is counted on all nodes."""
    source = (
        _PROLOGUE + "print('attempt', attempt)\nif attempt == 0:\n    if rank == 1: sys.exit(3)\n    time.sleep(120)"
    )
    overrides = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{free_port}", "--rdzv-id=restarts"]
    overrides += ["--local-addr=localhost", "--max-restarts=1"]

    launches = [warm_launchers.start(launch_directory / name, source, (), 1, overrides) for name in ("a", "b")]

    ended = [launch.wait() for launch in launches]
    assert [end.code for end in ended] == [0, 0]
    assert [end.stdout.count("attempt 1") for end in ended] == [1, 1]


def test_output_that_goes_to_torchs_files_still_tells_the_cause(run_launch: RunLaunch, tmp_path: Path) -> None:
    """With --redirects the launcher still finds the cause in torch's files."""
    logs, printed = tmp_path / "logs", tmp_path / "printed"
    source = f"""
print("kept", flush=True)
if rank == 0:
    open({str(printed)!r}, "w").close()
    time.sleep(120)
while not os.path.exists({str(printed)!r}):
    time.sleep(0.01)
raise ValueError("boom")
"""

    ended = run_launch(
        _PROLOGUE + source,
        overrides=["--redirects=3", f"--log-dir={logs}"],
    )

    wait_for(lambda: len(list(logs.rglob("stdout.log"))) == 2)
    assert (ended.failure.rank, ended.failure.cause) == (1, "raised ValueError: boom")
    assert ended.stdout == ""
    assert [log.read_text() for log in logs.rglob("stdout.log")] == ["kept\n"] * 2
