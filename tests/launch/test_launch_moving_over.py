"""What scripts and command lines of the predecessor's launchers find here."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path

import pytest
from launches import RunLaunch, WarmLaunchers
from torch.distributed import HashStore  # type: ignore[attr-defined]

from launch._command_line import Command, parse
from launch._deepspeed._core_binding import parse_cores, share
from launch._framework import Start
from launch._torchrun._config import configure
from launch._torchrun._nodes import decide_nodes
from launch._torchrun._options import parse_options
from launch.deepspeed import DeepSpeed
from launch.horovod import Horovod
from launch.tensorflow import TensorFlow
from launch.torch_distributed import TorchDistributed

_SHOW = "import json, os; print(json.dumps(dict(os.environ)))"
_CORES = sorted(os.sched_getaffinity(0))


def _shown(output: str) -> dict[str, str]:
    shown: dict[str, str] = json.loads(output.partition("] ")[2].partition("\n")[0])
    return shown


def test_ranks_find_what_determineds_launchers_tell(run_launch: RunLaunch) -> None:
    """Ranks find the variables of Determined's launchers."""
    variables = _shown(run_launch(_SHOW, num_ranks=1).stdout)

    assert (variables["USE_TORCH_DISTRIBUTED"], variables["DET_CHIEF_IP"]) == ("True", variables["MASTER_ADDR"])


def test_each_framework_says_its_name() -> None:
    """Each framework sets the variable that names it."""
    rank = {"LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1"}

    told = [framework.variables(rank) for framework in (TorchDistributed(), DeepSpeed())]

    assert [variables.get("USE_TORCH_DISTRIBUTED", variables.get("USE_DEEPSPEED")) for variables in told] == [
        "True",
        "1",
    ]


@pytest.mark.parametrize("framework", [TorchDistributed(), DeepSpeed(), Horovod(), TensorFlow()])
def test_a_script_before_the_dashes_is_a_script(framework: TorchDistributed) -> None:
    """Determined's launcher of DeepSpeed takes no options, so that the `--` in its lines is the script's."""
    assert parse(["s.py", "-x", "--", "arg"], framework.own_options) == Command((), ("s.py", "-x", "--", "arg"))


@pytest.mark.parametrize(
    ("line", "overrides", "script"),
    [
        ("--port 2222 train.py", "--port 2222", "train.py"),
        ("--port=2222 -- train.py", "--port=2222", "train.py"),
        ("--port=2222 train.py -- x", "--port=2222", "train.py -- x"),
        ("--port 2222 --other -- train.py", "--port 2222 --other", "train.py"),
    ],
)
def test_a_launchers_own_options_need_no_dashes(line: str, overrides: str, script: str) -> None:
    """A launcher's own options may stand before the script without `--`."""
    parsed = parse(line.split(), TensorFlow.own_options)

    assert parsed == Command(tuple(overrides.split()), tuple(script.split()))


@pytest.mark.parametrize("arguments", [["--autohorovod"], ["--autohorovod", "--"]])
def test_one_rank_needs_no_horovod(arguments: list[str], warm_launchers: WarmLaunchers, tmp_path: Path) -> None:
    """--autohorovod starts a single rank without Horovod."""
    (tmp_path / "train.py").write_text(_SHOW)

    ended = warm_launchers.start_command(tmp_path, "horovod", *arguments, "train.py").wait()

    assert ended.code == 0, ended.stderr
    assert not [name for name in _shown(ended.stdout) if "HOROVOD" in name]


def test_tensorflow_on_one_node_is_told_nothing(warm_launchers: WarmLaunchers, tmp_path: Path) -> None:
    """TensorFlow on a single node is one process without TF_CONFIG."""
    (tmp_path / "train.py").write_text(_SHOW)

    ended = warm_launchers.start_command(tmp_path, "tensorflow", "--port", "2222", "train.py").wait()

    assert ended.code == 0, ended.stderr
    variables = _shown(ended.stdout)
    assert ("TF_CONFIG" in variables, variables["WORLD_SIZE"]) == (False, "1")


def test_a_tensorflow_workers_port_is_held_until_the_worker_starts() -> None:
    """A TensorFlow worker's port is reserved until the worker starts."""
    store = HashStore()
    store.set("worker/1", "127.0.0.1:1")
    framework = TensorFlow()

    framework.meet(Start(0, 2, "127.0.0.1", 29500, store), (1, 1))

    port = int(store.get("worker/0").decode().rpartition(":")[2])
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("", port))
    framework.variables({"GROUP_RANK": "0"})
    with socket.socket() as worker:
        worker.bind(("", port))


def test_tensorflows_workers_are_told_of_each_other(
    warm_launchers: WarmLaunchers, tmp_path: Path, free_port: int
) -> None:
    """TF_CONFIG names one TensorFlow worker per node, each with its own port."""
    (tmp_path / "train.py").write_text("import os; print(os.environ['TF_CONFIG'])")
    places = {"PET_NNODES": "2", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(free_port)}

    launches = [
        warm_launchers.start_command(
            tmp_path, "tensorflow", "--", "train.py", variables=places | {"PET_NODE_RANK": str(node)}
        )
        for node in range(2)
    ]

    outputs = [launch.wait().stdout for launch in launches]
    told = [json.loads(output.partition("] ")[2]) for output in outputs]
    workers = told[0]["cluster"]["worker"]
    assert [each["task"] for each in told] == [{"type": "worker", "index": 0}, {"type": "worker", "index": 1}]
    assert told[0]["cluster"] == told[1]["cluster"]
    assert [worker.partition(":")[0] for worker in workers] == ["127.0.0.1"] * 2
    assert workers[0] != workers[1]


def test_cores_are_shared_as_deepspeed_shares_them() -> None:
    """Each rank gets an equal number of neighbouring cores."""
    shares = [share([0, 1, 2, 3, 8, 9, 10], local_rank, 3) for local_rank in range(3)]

    assert shares == [[0, 1], [2, 3], [8, 9]]
    assert parse_cores("0-3,8") == [0, 1, 2, 3, 8]


@pytest.mark.skipif(len(_CORES) < 2, reason="one core cannot be shared")
@pytest.mark.parametrize("cores", [[], [f"--bind_core_list={_CORES[-1]},{_CORES[0]}"]])
def test_ranks_of_deepspeed_are_bound_to_their_cores(
    cores: list[str], warm_launchers: WarmLaunchers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepSpeed's ranks are bound to their cores, with one thread per core."""
    (tmp_path / "train.py").write_text(
        "import os; print(sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'], os.environ['USE_DEEPSPEED'])"
    )
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    options = ["--num_gpus=2", "--bind_cores_to_rank", *cores, "--"]

    ended = warm_launchers.start_command(tmp_path, "deepspeed", *options, "train.py").wait()

    assert ended.code == 0, ended.stderr
    bound = [line.partition("] ")[2] for line in sorted(ended.stdout.splitlines())]
    if cores:
        assert bound == [f"[{_CORES[-1]}] 1 1", f"[{_CORES[0]}] 1 1"]
    else:
        first, second = ({int(core) for core in line[1 : line.index("]")].split(",")} for line in bound)
        assert first.isdisjoint(second)
        assert first | second <= set(_CORES)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--bind_core_list=0"], "give both"),
        (["--bind_cores_to_rank", "--bind_core_list=0-x"], "is no list of cores"),
        (["--bind_cores_to_rank", "--bind_core_list=99999"], "may not run on core 99999"),
        (["--bind_cores_to_rank", f"--bind_core_list={_CORES[0]},{_CORES[0]}"], "names a core twice"),
        (["--bind_cores_to_rank", f"--bind_core_list={_CORES[0]}"], "2 ranks cannot share 1 cores"),
    ],
)
def test_cores_that_cannot_be_shared_are_refused(
    options: list[str], words: str, warm_launchers: WarmLaunchers, tmp_path: Path
) -> None:
    """Cores that cannot be shared are refused before a rank starts."""
    (tmp_path / "train.py").write_text("print('started')")

    ended = warm_launchers.start_command(tmp_path, "deepspeed", "--num_gpus=2", *options, "--", "train.py").wait()

    assert (ended.code, words in ended.stderr, ended.stdout) == (2, True, ""), ended.stderr


@pytest.mark.parametrize(
    ("options", "variables", "run_id"),
    [
        (["--nnodes=1"], {}, "[0-9a-f]{32}"),
        (["--nnodes=1", "--rdzv-id=mine"], {}, "mine"),
        (["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1"], {}, "none"),
        (["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1"], {"CORE_SDK_JOB_ID": "digits"}, "job/digits"),
        (["--nnodes=1:2", "--rdzv-endpoint=h:1"], {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1"}, "slurm//7"),
        (["--nnodes=1:2", "--rdzv-endpoint=h:1", "--rdzv-id=mine"], {"CORE_SDK_JOB_ID": "digits"}, "mine"),
    ],
)
def test_a_launch_is_known_by_an_id_of_its_own(
    options: list[str], variables: dict[str, str], run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run id is random on one node; on several it is the job's, or torchrun's default; --rdzv-id has precedence."""
    for name in ("CORE_SDK_JOB_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    parsed = parse_options(options)
    config = configure(parsed, decide_nodes(parsed.given, None, lambda: 1))

    assert re.fullmatch(run_id, config.run_id)
