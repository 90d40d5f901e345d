"""torchrun's options about log files and events do here what they do there."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from launches import RunLaunch

_SOURCE = """
    import os, sys
    print("apple", os.environ["RANK"])
    print("pear", os.environ["RANK"])
    print("oh", os.environ["RANK"], file=sys.stderr)
"""


def _files(logs: Path) -> dict[str, str]:
    """Returns the content of each log, by its path within the directory of the attempt."""
    (attempt,) = logs.glob("*/attempt_0")
    return {str(path.relative_to(attempt)): path.read_text() for path in attempt.rglob("*.log")}


def test_what_is_teed_is_shown_and_kept(run_launch: RunLaunch, tmp_path: Path) -> None:
    """--tee shows and keeps the output, and filtered lines of all ranks go into one file."""
    overrides = ["--tee=3", f"--log-dir={tmp_path / 'logs'}", "--duplicate-stdout-filters=apple"]

    ended = run_launch(_SOURCE, overrides=overrides)

    assert ended.code == 0, ended.stderr
    assert {"[rank=0] apple 0", "[rank=1] pear 1"} <= set(ended.stdout.splitlines())
    assert {"[rank=0] oh 0", "[rank=1] oh 1"} <= set(ended.stderr.splitlines())
    files = _files(tmp_path / "logs")
    assert (files["0/stdout.log"], files["1/stderr.log"]) == ("apple 0\npear 0\n", "oh 1\n")
    assert sorted(files["filtered_stdout.log"].splitlines()) == ["[rank=0] apple 0", "[rank=1] apple 1"]


def test_a_local_rank_that_is_not_asked_for_is_not_shown(run_launch: RunLaunch, tmp_path: Path) -> None:
    """--local-ranks-filter hides a rank's output but keeps it in its file."""
    overrides = ["--redirects=0:1,1:1", "--local-ranks-filter=0", f"--log-dir={tmp_path / 'logs'}"]

    ended = run_launch(_SOURCE, overrides=overrides)

    assert (ended.code, ended.stdout) == (0, "")
    assert "[rank=0] oh 0" in ended.stderr
    assert "oh 1" not in ended.stderr
    assert {name for name, text in _files(tmp_path / "logs").items() if "apple" in text} == {
        "0/stdout.log",
        "1/stdout.log",
    }


def test_events_come_to_the_handler_that_is_named(run_launch: RunLaunch) -> None:
    """--event-log-handler gets an event for the start and the end of each rank."""
    ended = run_launch("print('done')", overrides=["--event-log-handler=console"])

    assert ended.code == 0, ended.stderr
    states = [state for state in ("START", "SUCCEEDED", "FAILED") for _ in range(ended.stderr.count(f'"{state}"'))]
    assert states == ["START"] * 2 + ["SUCCEEDED"] * 2


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("--event-log-handler=mine", "mine is not registered with torch"),
        ("--logs-specs=mine", "no package registers it as torchrun.logs_specs"),
        ("--redirects=9", "--redirects=9 cannot be: give 0 none, 1 stdout, 2 stderr or 3 both"),
        ("--tee=0:1,3", "--tee=0:1,3 cannot be"),
        ("--local-ranks-filter=a", "--local-ranks-filter=a cannot be"),
        ("--numa-binding=node", "--numa-binding=node is not possible with torch"),
        ("--nproc-per-node=tpu", "give a number, auto, cpu, gpu or xpu"),
        ("--nproc-per-node=gpu", "this node has none"),
    ],
)
def test_an_option_that_cannot_be_heeded_here_is_named(override: str, words: str, run_launch: RunLaunch) -> None:
    """An option value that is unknown here is refused before a rank starts."""
    ended = run_launch("print('started')", overrides=[override])

    assert (ended.code, ended.stdout) == (2, ""), ended.stderr
    assert words in ended.stderr


def test_log_files_that_cannot_be_made_are_one_sentence(run_launch: RunLaunch) -> None:
    """If the log files cannot be made, the launcher says so in one line."""
    ended = run_launch("print('started')", overrides=["--tee=3", "--log-dir=/proc"])

    assert (ended.code, ended.stdout) == (1, ""), ended.stderr
    assert re.fullmatch(r"\[core-sdk\] the ranks' files cannot be made: /proc\S*: No such .*\n", ended.stderr)


def test_a_log_directory_that_is_lost_between_two_starts_is_one_sentence(run_launch: RunLaunch, tmp_path: Path) -> None:
    """If the log directory is lost before a restart, the last line says so."""
    source = """
        import os, shutil, sys
        logs = sys.argv[1]
        if os.environ["RANK"] == "0":
            shutil.rmtree(logs)
            open(logs, "w").close()
            sys.exit(7)
        import signal; signal.pause()
    """
    logs = tmp_path / "logs"

    ended = run_launch(source, str(logs), overrides=["--max-restarts=1", "--tee=3", f"--log-dir={logs}"])

    assert ended.code == 1, ended.stderr
    assert re.search(r"^\[core-sdk\] rank 0 .* attempt 2 of 2 begins$", ended.stderr, re.MULTILINE)
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f"[core-sdk] the ranks' files cannot be made: {logs}"), ended.stderr
    assert last.endswith(": Not a directory")


def test_a_rank_may_see_its_own_gpu_only(run_launch: RunLaunch) -> None:
    """With --virtual-local-rank each rank sees its own GPU only, as device 0."""
    source = "import os; print(*(os.environ[name] for name in ('RANK', 'LOCAL_RANK', 'CUDA_VISIBLE_DEVICES')))"

    ended = run_launch(source, overrides=["--virtual-local-rank"])

    assert sorted(ended.stdout.splitlines()) == ["[rank=0] 0 0 0", "[rank=1] 1 0 1"]


@pytest.mark.parametrize("is_variable", [False, True])
def test_lines_begin_as_the_user_has_chosen(
    is_variable: bool, run_launch: RunLaunch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line prefix can be set by torchrun's option or variable."""
    template = "${role_name}/${local_rank}/${rank}/${hostname}: "
    if is_variable:
        monkeypatch.setenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", template)

    ended = run_launch("print('done')", overrides=[] if is_variable else [f"--log-line-prefix-template={template}"])

    host = socket.gethostname()
    assert sorted(ended.stdout.splitlines()) == [f"default/0/0/{host}: done", f"default/1/1/{host}: done"]
