"""The examples run on a machine with a GPU, and those that choose a device use it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from parts import needs

pytestmark = [needs("gpu"), pytest.mark.timeout(300)]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ON_A_GPU = ["5_distributed.py", "5_sharded.py", "6_frameworks.py", "8_trial.py", "8_gan.py", "8_language_model.py"]
WITH_LIBRARIES = {"7_lightning.py": "lightning", "7_transformers.py": "transformers", "7_accelerate.py": "accelerate"}
ON_A_CPU = ["2_checkpoints.py", "9_sgd.py", "9_train.py"]
LAUNCHED = [*ON_A_GPU[:3], *WITH_LIBRARIES]

# Read by the site module of each Python that finds it.
TELLING = """
import atexit, os, sys

def tell():
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized() and torch.cuda.max_memory_allocated():
        open(os.environ["USED_GPU"], "a").close()

atexit.register(tell)
"""


@dataclass(frozen=True)
class Ended:
    code: int
    output: str
    used_gpu: bool


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ended]]:
    """All examples, side by side to save time."""
    root = tmp_path_factory.mktemp("examples")
    (root / "sitecustomize.py").write_text(TELLING)
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    started = {}
    with contextlib.ExitStack() as files:
        for script in [*ON_A_GPU, *WITH_LIBRARIES, *ON_A_CPU]:
            folder = root / script
            folder.mkdir()
            launcher = ["-m", "launch.torch_distributed", "--nproc-per-node=1", "--", sys.executable]
            variables = {"PYTHONPATH": path, "CORE_SDK_HOME": str(folder / "home"), "USED_GPU": str(folder / "used")}
            started[script] = subprocess.Popen(
                [sys.executable, *(launcher if script in LAUNCHED else ()), str(EXAMPLES / script)],
                stdout=files.enter_context((folder / "output").open("wb")),
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=os.environ | variables,
            )
        codes = {script: process.wait() for script, process in started.items()}
    yield {
        script: Ended(code, (root / script / "output").read_text(errors="replace"), (root / script / "used").exists())
        for script, code in codes.items()
    }


def check(ended: Ended) -> None:
    assert ended.code == 0, ended.output
    told = r"(?:accuracy|distance|loss) (\S+) .*\(expected: (\S+) or (more|less)\)"
    for reached, expected, direction in re.findall(told, ended.output):
        is_as_promised = float(reached) >= float(expected) if direction == "more" else float(reached) <= float(expected)
        assert is_as_promised, ended.output


@pytest.mark.parametrize("script", ON_A_GPU)
def test_an_example_trains_on_the_gpu(ended: dict[str, Ended], script: str) -> None:
    """The example uses the GPU, and reaches what it promises."""
    check(ended[script])
    assert ended[script].used_gpu


@pytest.mark.parametrize("script", WITH_LIBRARIES)
def test_an_example_of_a_library_trains_on_the_gpu(ended: dict[str, Ended], script: str) -> None:
    """The library uses the GPU, and its callback records."""
    pytest.importorskip(WITH_LIBRARIES[script], reason=f"NOT TESTED: {script}")
    check(ended[script])
    assert ended[script].used_gpu


@pytest.mark.parametrize("script", ON_A_CPU)
def test_an_example_for_the_cpu_leaves_the_gpu_alone(ended: dict[str, Ended], script: str) -> None:
    """The example reaches what it promises, and does not take memory of a GPU that it does not use."""
    check(ended[script])
    assert not ended[script].used_gpu
