"""Trainings on a GPU record metrics that lie there, its figures, its name, and its slot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from parts import needs
from processes import TIMEOUT_S, wait_for

from core_sdk import client, core
from core_sdk.core import Logger

pytestmark = needs("gpu")

CORE_SDK = [sys.executable, "-m", "core_sdk._interfaces.cli"]


def uuid() -> str:
    """Returns the first GPU's name, as CUDA and NVML write it."""
    return f"GPU-{torch.cuda.get_device_properties(0).uuid}"


def core_sdk(*arguments: object, **variables: str) -> str:
    ended = subprocess.run(
        [*CORE_SDK, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | variables,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_metrics_may_lie_on_the_gpu() -> None:
    """Scalars of each type of number, and losses with a graph, are reported as their values."""
    weight = torch.tensor(1.5, device="cuda", requires_grad=True)
    values = {
        "loss": weight * 2,
        "detached": (weight * 2).detach(),
        "half": torch.tensor(0.25, device="cuda", dtype=torch.float16),
        "brain": torch.tensor(-2.0, device="cuda", dtype=torch.bfloat16),
        "count": torch.tensor(7, device="cuda"),
        "nan": torch.tensor(float("nan"), device="cuda"),
    }
    with core.init(name="metrics") as context:
        context.train.report_training_metrics(1, values)
        logger = Logger(context)
        logger.log({"train/loss": weight * 3, "val": {"accuracy": torch.tensor(0.5, device="cuda")}}, step=2)
        with pytest.raises((TypeError, ValueError), match="shape"):
            context.train.report_training_metrics(3, {"loss": torch.ones(2, device="cuda")})

    trial = client.get_trial(1)
    first, second = (report.metrics for report in trial.iter_metrics("training"))
    assert first.pop("nan") != first.get("nan")
    assert first == {"loss": 3.0, "detached": 3.0, "half": 0.25, "brain": -2.0, "count": 7}
    assert second == {"loss": 4.5}
    assert [report.metrics for report in trial.iter_metrics("validation")] == [{"accuracy": 0.5}]


def test_the_profiler_knows_the_gpu() -> None:
    """The figures of the GPU carry its UUID, and follow what the training does on it."""
    pytest.importorskip("pynvml", reason="NOT TESTED: figures of a GPU need nvidia-ml-py")
    free_memory, util = f"gpu_free_memory.{uuid()}", f"gpu_util.{uuid()}"
    matrix = torch.randn(8192, 8192, device="cuda")
    taken = torch.zeros(2 << 30, dtype=torch.uint8, device="cuda")

    def latest() -> dict[str, Any]:
        return next((report.metrics for report in reversed(list(client.get_trial(1).iter_metrics("gpu")))), {})

    def is_true() -> bool:
        (matrix @ matrix).sum().item()
        free, total = torch.cuda.mem_get_info()
        figures = latest()
        # Other processes use the GPU, too.
        is_near = abs(figures.get(free_memory, 0) - free) < 1 << 30 and free < total - taken.nbytes
        return is_near and 0 < figures.get(util, 0) <= 100

    with core.init(name="figures") as context:
        context.profiler.on(sampling_interval=0.1, samples_per_report=1)
        wait_for(is_true, timeout_s=30)
        context.profiler.off()

    assert latest().keys() >= {free_memory, util}


def test_the_record_of_an_attempt_names_the_gpu(run_script: Callable[..., tuple[int, str, str]]) -> None:
    """A script that begins its Context before it uses the GPU has the GPU's name in its record."""
    status, _, errors = run_script(
        """
        from core_sdk import core

        with core.init(name="named") as context:
            context.train.report_training_metrics(1, {"loss": 1})
        """
    )

    assert status == 0, errors
    assert torch.cuda.get_device_name(0) in core_sdk("trial", "describe", 1)


def experiment(directory: Path, slots_per_trial: int) -> Path:
    """Returns a configuration whose trial reports which GPUs it sees."""
    code = directory / "code"
    code.mkdir()
    (code / "train.py").write_text(
        textwrap.dedent(
            """
            import os
            import torch
            from core_sdk import core

            print("sees", os.environ["CUDA_VISIBLE_DEVICES"])
            with core.init() as context:
                info = context.info
                print("has", info.gpu_uuids)
                count = torch.cuda.device_count()
                free = torch.ones((), device="cuda") if count else 0
                context.train.report_validation_metrics(1, {"loss": 1.0, "gpus": count, "sum": free})
            """
        )
    )
    config = directory / "experiment.json"
    settings = {
        "name": "on the gpu",
        "entrypoint": [sys.executable, "train.py"],
        "resources": {"slots_per_trial": slots_per_trial},
        "searcher": {"name": "single", "metric": "loss"},
        "max_restarts": 0,
    }
    config.write_text(json.dumps(settings))
    return config


@pytest.mark.parametrize("slots_per_trial", [1, 0])
def test_a_trial_sees_the_gpus_of_its_slots(tmp_path: Path, slots_per_trial: int) -> None:
    """On a machine whose GPUs are named by UUID a trial gets the GPU of its slot; one without slots sees none."""
    slots = json.loads(core_sdk("slot", "list", "--json", CUDA_VISIBLE_DEVICES=uuid()))
    config = experiment(tmp_path, slots_per_trial)

    core_sdk("experiment", "create", "--local", config, tmp_path / "code", CUDA_VISIBLE_DEVICES=uuid())

    (report,) = client.get_trial(1).iter_metrics("validation")
    log = core_sdk("trial", "logs", 1)
    assert [slot["gpu"] for slot in slots] == [uuid()]
    assert report.metrics["gpus"] == slots_per_trial
    assert f"sees {uuid() if slots_per_trial else ''}" in log
    assert f"has {[uuid()] if slots_per_trial else []}" in log


def test_every_gpu_of_the_machine_is_a_slot() -> None:
    """Without CUDA_VISIBLE_DEVICES there is a slot for each GPU."""
    slots = json.loads(core_sdk("slot", "list", "--json"))

    assert len(slots) == torch.cuda.device_count()
    assert all(slot["gpu"] for slot in slots)


def test_a_gpu_that_a_program_fills_is_avoided(tmp_path: Path) -> None:
    """With --avoid-busy a command waits, and says why, as long as a program without a slot fills the only GPU."""
    pytest.importorskip("pynvml", reason="NOT TESTED: busy GPUs are told by nvidia-ml-py")
    fill = "import torch; x = torch.empty(torch.cuda.mem_get_info()[1] // 5, dtype=torch.uint8, device='cuda')"
    waiting = [*CORE_SDK, "run", "--slots", "1", "--avoid-busy", "--", sys.executable, "-c", "print('has it')"]
    variables = os.environ | {"CUDA_VISIBLE_DEVICES": uuid()}
    filling = [sys.executable, "-c", f"{fill}; print('filled', flush=True); input()"]

    with subprocess.Popen(filling, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables) as program:
        assert program.stdout is not None and program.stdout.readline() == b"filled\n"
        with subprocess.Popen(waiting, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=variables) as command:
            assert command.stderr is not None
            told = command.stderr.readline().decode()
            program.kill()
            output, _ = command.communicate(timeout=TIMEOUT_S)

    assert f"programs without a slot fill {uuid()}" in told
    assert (command.returncode, output) == (0, b"has it\n")
