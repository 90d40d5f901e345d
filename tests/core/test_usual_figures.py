"""A training records by itself how it uses the machine, and how long it waits for data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import torch
from processes import wait_for

from core_sdk import core
from core_sdk._analysis.machine_use import read_machine_use
from core_sdk._ground.data.waits import DataWait
from core_sdk._home import Home, open_view
from core_sdk._home.attempts.claiming import claim_attempt
from core_sdk._home.attempts.definition import Definition
from core_sdk._home.journal import RankJournal
from core_sdk._home.storage import DirectoryStorage
from core_sdk._interfaces.cli.trial.description import describe_trial
from core_sdk.core._context import Context
from core_sdk.core._profiler._flops import peak_of
from core_sdk.core._settings import ProcessSettings
from core_sdk.core._train import TrialLedger


def num_records(home: Home, group: str) -> int:
    journal = home.trial(1).journal_path(1).read_text().splitlines()
    return sum(f'"group":"{group}"' in line for line in journal)


def test_a_training_records_its_figures_by_itself(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has asked for figures; half of the time the training waits for data."""
    monkeypatch.setenv("CORE_SDK_FIGURES_S", "0.1")

    with core.init() as context:

        def waits() -> bool:
            DataWait.of_process.seconds += 0.005
            time.sleep(0.005)
            return num_records(home, "process") > 0

        wait_for(waits)
        context.train.report_training_metrics(1, {"loss": 1.0})

    with open_view(home) as view:
        use = read_machine_use(view, 1)
    assert use is not None
    assert use.cores is not None
    assert use.rss_bytes is not None
    assert use.rss_bytes > 1e7
    assert 5 < use.data_waits[0] < 100
    assert use.wait_words().startswith("waits ")
    assert use.wait_words().endswith(" % for data")


# The second rank waits for data for a third of the time.
RANKS = """
import time
from core_sdk import core
from core_sdk._ground.data.waits import DataWait

with core.init(distributed="torch") as context:
    for step in range(1, 16):
        DataWait.of_process.seconds += 0.05 * context.distributed.rank
        time.sleep(0.1)
        context.distributed.allgather(step)
        context.train.report_training_metrics(step, {"loss": 1.0})
"""


def test_the_rank_that_waits_longest_for_data_is_named(tmp_path: Path, home: Home) -> None:
    """Each rank records its own figures, and `trial describe` has them in one line."""
    (tmp_path / "train.py").write_text(RANKS)
    launch = [sys.executable, "-m", "launch.torch_distributed", "--nproc-per-node", "2", "--", sys.executable]
    variables = os.environ | {"CORE_SDK_FIGURES_S": "0.2"}

    subprocess.run([*launch, "train.py"], cwd=tmp_path, env=variables, check=True, timeout=120, capture_output=True)

    value, told = describe_trial(home, 1)
    assert {*value["machine_use"]["data_waits"]} == {0, 1}
    assert "rank 1 waits longest for data, " in str(told["Use of the machine"])


# The second rank computes for most of the time, and the first one waits for it; each has a worker that computes.
COMPUTING = """
import multiprocessing, time
from core_sdk import core


def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


if __name__ == "__main__":
    with core.init(distributed="torch") as context:
        worker = multiprocessing.get_context("fork").Process(target=compute, args=[30], daemon=True)
        worker.start()
        for step in range(1, 16):
            compute(0.2 * context.distributed.rank)
            context.distributed.allgather(step)
            context.train.report_training_metrics(step, {"loss": 1.0})
        worker.kill()
"""


def test_a_rank_that_waits_for_another_one_computes_less(tmp_path: Path, home: Home) -> None:
    """The time of workers is told apart from that of their rank."""
    (tmp_path / "train.py").write_text(COMPUTING)
    launch = [sys.executable, "-m", "launch.torch_distributed", "--nproc-per-node", "2", "--", sys.executable]
    variables = os.environ | {"CORE_SDK_FIGURES_S": "0.2"}

    subprocess.run([*launch, "train.py"], cwd=tmp_path, env=variables, check=True, timeout=120, capture_output=True)

    with open_view(home) as view:
        use = read_machine_use(view, 1)
    assert use is not None
    assert use.computes[1] > 2 * use.computes[0]
    assert use.worker_cores is not None


def test_the_profiler_takes_the_place_of_the_usual_figures(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is recorded twice, and after `off()` nothing at all."""
    monkeypatch.setenv("CORE_SDK_FIGURES_S", "600")

    with core.init() as context:
        context.profiler.on(sampling_interval=0.1, samples_per_report=1)
        wait_for(lambda: num_records(home, "network") > 1)
        context.profiler.off()

    assert num_records(home, "process") == num_records(home, "network")


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_rank_on_a_node_without_the_home_samples_what_comes_home(home: Home, tmp_path: Path, is_kept: bool) -> None:
    """It does in a spool, whose records are brought to the home; where nobody would read them it takes no samples."""
    attempt = claim_attempt(Home.create(home.root), None, Definition(name="spooled"), 2)
    start = msgspec.structs.replace(attempt.start, rank=1)
    journal = RankJournal(tmp_path / "1.rank1.journal", start, is_kept=is_kept)
    of_rank = msgspec.structs.replace(attempt, journal=journal, start=start, alive=None, is_home_shared=False)
    settings = ProcessSettings.given(core.PreemptMode.WorkersAskChief, core.TensorboardMode.AUTO, None, None)
    storage = DirectoryStorage(tmp_path / "checkpoints")

    with Context(of_rank, storage, core.DistributedContext(), settings, TrialLedger()) as context:
        samples = context.profiler._usual is not None

    attempt.journal.close()
    assert samples == is_kept


def test_figures_may_be_switched_off(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORE_SDK_FIGURES_S", "off")

    with core.init() as context:
        assert context.profiler._usual is None

    monkeypatch.setenv("CORE_SDK_FIGURES_S", "often")
    with pytest.raises(ValueError, match="CORE_SDK_FIGURES_S is 'often'; it must be off"):
        core.init()


def test_the_operations_of_a_step_are_counted(home: Home) -> None:
    """Those of a forward and a backward pass; what the device can do is not known of a CPU."""
    layer = torch.nn.Linear(64, 64, bias=False)

    with core.init() as context, context.profiler.count_flops():
        layer(torch.ones(8, 64)).sum().backward()

    with open_view(home) as view:
        row = view.trial(1)
    assert (row.flops_per_step, row.peak_flops) == (2 * 2 * 8 * 64 * 64, None)


def test_flops_give_the_share_that_the_devices_were_used(home: Home) -> None:
    """The MFU is of the steps that were kept, in the time of the training."""
    with core.init() as context:
        context.profiler.set_flops(1e6, peak_flops=1e9)
        for step in range(1, 4):
            context.train.report_training_metrics(step, {"loss": 1.0})
            time.sleep(0.01)  # what a step takes

    with open_view(home) as view:
        row, use = view.trial(1), read_machine_use(view, 1)
        (spent,) = view.times(trial_ids=[1])
    assert (row.flops_per_step, row.peak_flops) == (1e6, 1e9)
    assert use is not None
    assert use.mfu == pytest.approx(3e6 / (1e9 * spent.time.training / 1000))
    assert json.loads(json.dumps(use.as_values()))["words"].startswith("MFU ")


@pytest.mark.parametrize(("flops", "peak"), [(0, None), (-1.0, None), (float("nan"), None), (1.0, 0.0)])
def test_flops_that_are_none_are_refused(home: Home, flops: float, peak: float | None) -> None:
    with core.init() as context, pytest.raises(ValueError, match="it must be above 0"):
        context.profiler.set_flops(flops, peak)


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A10G", 70e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA H200", 989e12),
        ("GeForce 256", None),
    ],
)
def test_the_peak_of_a_device_is_known_by_its_name(name: str, peak: float | None) -> None:
    assert peak_of(name) == peak
