"""What workers record on a host that does not see the home comes home, whatever dies."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from parts import needs
from workers.ray_hosts import RayHosts, ray_hosts

from core_sdk.tracking import Home
from core_sdk.train.driver.reading import read_reports

pytestmark = needs("ray", "hosts")

_BEGINNING = """
import os, signal, sys, time
from core_sdk import train
from core_sdk.train.torch import TorchTrainer

def on_second_host(function, num_workers=1, **run):
    scaling = train.ScalingConfig(
        num_workers=num_workers, engine="ray", address=ADDRESS, resources_per_worker={"CPU": 1, "h2": 1}
    )
    return TorchTrainer(function, scaling_config=scaling, run_config=train.RunConfig(**run))

"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RayHosts]:
    with ray_hosts(tmp_path) as cluster:
        yield cluster


def run(cluster: RayHosts, source: str) -> str:
    """What a program on the first host has printed, once it has ended well."""
    text = f"ADDRESS = {cluster.address!r}\n" + _BEGINNING + textwrap.dedent(source)
    code, output, errors = cluster.start(text).wait()
    assert code == 0, f"exit status {code}\n{output}\n{errors}"
    return output


def test_reports_and_checkpoints_of_another_host_come_home(cluster: RayHosts) -> None:
    """All of them, once; nothing is left there. The training goes on from such a checkpoint."""
    output = run(
        cluster,
        """
        import tempfile
        from pathlib import Path

        def train_func():
            first = 0
            if (checkpoint := train.get_checkpoint()) is not None:
                with checkpoint.as_directory() as directory:
                    first = int((Path(directory) / "step").read_text())
            for step in range(first, 20):
                with tempfile.TemporaryDirectory() as directory:
                    (Path(directory) / "step").write_text(str(step + 1))
                    kept = train.Checkpoint.from_directory(directory) if step % 10 == 4 else None
                    train.report({"step": step}, checkpoint=kept)
                if step == 6 and not first:
                    os.kill(os.getpid(), signal.SIGKILL)
            return os.uname().nodename

        failures = train.FailureConfig(max_failures=1)
        result = on_second_host(train_func, failure_config=failures).fit()
        print(result.return_value, len(result.metrics_dataframe), result.checkpoint is not None)
        with result.checkpoint.as_directory() as directory:
            print((Path(directory) / "step").read_text())
    """,
    )

    assert output.splitlines()[-2:] == ["h2 20 True", "15"]
    assert [metrics["step"] for _, metrics in read_reports(Home(cluster.home).trial(1))] == list(range(20))
    spools = list((cluster.second_home / "spools").iterdir())
    assert [list((spool / "runs").iterdir()) for spool in spools] == [[]]
