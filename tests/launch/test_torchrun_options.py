"""torchrun's command line is ours to the letter: each option of the installed torch has the same name and meaning."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest
from launches import WarmLaunchers
from torch.distributed.run import get_args_parser

from launch._torchrun._options import TorchrunOptions, options_text, parse_options, with_dashes

# The script stands for itself, and what torchrun prints is about torchrun.
_REFUSED = {
    "no_python",
    "training_script",
    "training_script_args",
    "help",
    "print_completion",
}
_LINES = [
    "",
    "--nnodes=2:4 --nproc_per_node=gpu --rdzv-backend=c10d --rdzv_endpoint=h1:29400 --rdzv-id=7",
    "--nnodes 2 --nproc-per-node 8 --node-rank=1 --master-addr=h1 --master_port 29511",
    "--standalone --max-restarts=3 --monitor-interval=0.5 --start-method=fork --role=trainer",
    "-r 3 -t 0:1,1:2 --log-dir=/tmp/logs --local-ranks-filter=0,1",
    "--rdzv-conf=timeout=9,is_host=1 --local-addr=10.0.0.1 --nproc-per-n=3",
    "--logs-specs=mine",
    "-m --run-path",
]
_SCRIPTS = [
    "train.py",
    "train.py --nproc-per-node=3 --lr 1",
    "--nproc-per-node 2 --standalone train.py --lr 1 --help",
    "--standalone -r3 -t 3 --max-restarts=1 train.py -m x",
    "--nproc-per-node=2 -m package.train --nnodes 3",
    "-m package.train",
    "--nproc-per-node=2 --module package.train",
    "--run-path /there/train.py x",
    "--nproc-per-node=2 -- train.py --lr 1",
    "--no-python --nproc-per-n=2 ./program -v",
]
_NEWER_LINES = {
    "numa_binding": "--numa-binding=socket",
    "signals_to_handle": "--signals-to-handle=SIGTERM,SIGUSR1",
    "shutdown_timeout": "--shutdown-timeout=60",
    "virtual_local_rank": "--virtual-local-rank",
    "log_line_prefix_template": "--log-line-prefix-template=${hostname}:${rank}:",
    "event_log_handler": "--event-log-handler=console",
    "duplicate_stdout_filters": "--duplicate-stdout-filters=apple,or,,ange",
}


@pytest.fixture
def theirs() -> ArgumentParser:
    return get_args_parser()


def _values(parser: ArgumentParser, line: str) -> dict[str, Any]:
    parsed = vars(parser.parse_args([*line.split(), "train.py"]))
    if "--master" not in line:
        # The default is told to nobody, and differs between versions.
        del parsed["master_port"]
    return {name: value for name, value in parsed.items() if name not in _REFUSED}


def _same(ours: TorchrunOptions, theirs: dict[str, Any]) -> bool:
    return {name: getattr(ours, name) for name in theirs} == theirs


@pytest.mark.parametrize("line", _LINES)
def test_each_line_means_the_same(line: str, theirs: ArgumentParser) -> None:
    """Each line of options is parsed to the same values as by torchrun."""
    assert _same(parse_options(line.split()), _values(theirs, line))


@pytest.mark.parametrize("line", _SCRIPTS)
def test_the_script_begins_where_it_does_under_torchrun(line: str, theirs: ArgumentParser) -> None:
    """The script begins at the same word as under torchrun, without `--`."""
    ours = with_dashes(line.split())

    dashes = ours.index("--")
    given = theirs.parse_args(line.split())
    module = ["-m"] if given.module else []
    assert ours[dashes + 1 :] == [*module, given.training_script, *given.training_script_args]
    assert parse_options(ours[:dashes]).nproc_per_node == given.nproc_per_node


def test_a_line_of_torchruns_runs_as_it_is(warm_launchers: WarmLaunchers, launch_directory: Path) -> None:
    """A torchrun command line with a module runs unchanged."""
    package = launch_directory / "package"
    package.mkdir()
    (package / "train.py").write_text("import os, sys; print(__name__, os.environ['RANK'], *sys.argv[1:])")
    line = "torch_distributed --nproc-per-node 2 --max-restarts 1 -m package.train --lr 1 -- x"

    ended = warm_launchers.start_command(launch_directory, *line.split()).wait()

    assert ended.code == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == [f"[rank={rank}] __main__ {rank} --lr 1 -- x" for rank in range(2)]


@pytest.mark.parametrize("name", _NEWER_LINES)
def test_options_of_newer_torch_mean_the_same(name: str, theirs: ArgumentParser) -> None:
    """Options of newer versions of torch are also understood with an older one."""
    line = _NEWER_LINES[name]
    if not any(action.dest == name for action in theirs._actions):
        pytest.skip(f"this torchrun has no {line}")

    assert _same(parse_options(line.split()), _values(theirs, line))


def test_each_option_is_written_as_torchrun_writes_it(theirs: ArgumentParser) -> None:
    """Every spelling of torchrun's options is accepted."""
    for action in theirs._actions:
        for string in action.option_strings:
            if action.dest in _REFUSED:
                continue
            values = [] if action.nargs == 0 else [(list(action.choices or []) or ["7"])[0]]
            parsed = parse_options([string, *values])
            assert action.dest in parsed.given, string


def test_the_help_has_each_option_of_torchrun(theirs: ArgumentParser) -> None:
    """The help has every option of torchrun with its spellings and choices."""
    text = options_text()

    for action in theirs._actions:
        if action.dest not in _REFUSED:
            assert all(string in text for string in action.option_strings)
            assert all(str(choice) in text for choice in action.choices or [])


def test_variables_are_those_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """PET_ variables have the same meaning as for torchrun."""
    for name, value in {"NNODES": "2:3", "MAX_RESTARTS": "4", "STANDALONE": "1", "LOGS_SPECS": "mine"}.items():
        monkeypatch.setenv(f"PET_{name}", value)

    ours = parse_options(["--nnodes=5"])

    assert _same(ours, _values(get_args_parser(), "--nnodes=5"))
    assert ours.given == {"nnodes": "5", "max_restarts": 4, "standalone": True}
