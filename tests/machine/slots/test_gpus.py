"""The names of GPUs, from what NVIDIA's driver shows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from core_sdk._ground.environment import visible_gpus
from core_sdk._machine.slots import Machine, machine
from core_sdk._machine.slots._gpus import ListedGpu, gpus_here
from core_sdk.errors import SlotError

_LIST = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aa)
  MIG 3g.20gb     Device  0: (UUID: MIG-a1)
  MIG 3g.20gb     Device  1: (UUID: MIG-a2)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bb)
"""


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """The driver's directory on a machine with two GPUs, of which both may be used."""
    for minor, (bus, uuid) in enumerate([("0000:81:00.0", "GPU-bb"), ("0000:01:00.0", "GPU-aa")]):
        folder = tmp_path / "nvidia" / "gpus" / bus
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t NVIDIA A100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
        (tmp_path / f"nvidia{minor}").touch()
    return tmp_path / "nvidia"


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def answer(script: str) -> None:
        program = tmp_path / "bin" / "nvidia-smi"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    return answer


def test_gpus_are_named_by_uuid_in_the_order_of_their_buses(driver: Path) -> None:
    """GPUs are named by their UUIDs, in the order of their buses; those that a scheduler hides are left out."""
    assert gpus_here(driver, driver.parent) == [ListedGpu("GPU-aa"), ListedGpu("GPU-bb")]

    (driver.parent / "nvidia1").unlink()

    assert gpus_here(driver, driver.parent) == [ListedGpu("GPU-bb")]
    assert gpus_here(driver / "none", driver.parent) == []


@pytest.mark.parametrize("reason", ["MIG", "unused"])
def test_what_the_driver_does_not_show_nvidia_smi_tells(
    driver: Path, nvidia_smi: Callable[[str], None], reason: str
) -> None:
    """For instances of MIG, and for GPUs that nothing has used yet, nvidia-smi is asked; its refusal is told."""
    if reason == "MIG":
        (driver / "capabilities" / "gpu1" / "mig" / "gi1").mkdir(parents=True)
    else:
        (driver / "gpus" / "0000:01:00.0" / "information").write_text("GPU UUID: \t GPU-????????\nDevice Minor: 1\n")
    nvidia_smi(f"cat <<'END'\n{_LIST}END")

    assert gpus_here(driver, driver.parent) == [ListedGpu("GPU-aa", ("MIG-a1", "MIG-a2")), ListedGpu("GPU-bb")]

    (driver.parent / "bin" / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    with pytest.raises(SlotError, match=r"only `nvidia-smi -L` tells.*exit status 9.*CUDA_VISIBLE_DEVICES"):
        gpus_here(driver, driver.parent)


WHOLE = [ListedGpu("GPU-aa"), ListedGpu("GPU-ab"), ListedGpu("GPU-bb")]
SPLIT = [ListedGpu("GPU-aa", ("MIG-a1", "MIG-a2")), ListedGpu("GPU-bb")]
NOTHING: list[str] = []


@pytest.mark.parametrize(
    ("gpus", "variable", "slots"),
    [
        (WHOLE, None, ["GPU-aa", "GPU-ab", "GPU-bb"]),
        (WHOLE, "", NOTHING),
        (WHOLE, "-1", NOTHING),
        (WHOLE, "NoDevFiles", NOTHING),
        (WHOLE, "none", NOTHING),
        (WHOLE, "2,0", ["GPU-bb", "GPU-aa"]),
        (WHOLE, " 1 , 0 ", ["GPU-ab", "GPU-aa"]),
        (WHOLE, "1,", ["GPU-ab"]),
        (WHOLE, "1,,0", ["GPU-ab"]),
        (WHOLE, "0,-1,1", ["GPU-aa"]),
        (WHOLE, "0,7,1", ["GPU-aa"]),
        (WHOLE, "7", NOTHING),
        (WHOLE, "1x,2", ["GPU-ab", "GPU-bb"]),
        (WHOLE, "0,0", NOTHING),
        (WHOLE, "0,00", NOTHING),
        (WHOLE, "0,1,0", NOTHING),
        (WHOLE, "GPU-b", ["GPU-bb"]),
        (WHOLE, "GPU-bb,GPU-aa", ["GPU-bb", "GPU-aa"]),
        (WHOLE, "GPU-a", NOTHING),  # of two
        (WHOLE, "GPU-bb,GPU-zz,GPU-aa", ["GPU-bb"]),
        (WHOLE, "GPU-b,GPU-bb", NOTHING),
        (WHOLE, "2,GPU-bb", NOTHING),
        (SPLIT, None, ["MIG-a1", "MIG-a2", "GPU-bb"]),
        (SPLIT, "0", ["MIG-a1", "MIG-a2"]),
        (SPLIT, "1", ["GPU-bb"]),
        (SPLIT, "2", NOTHING),
        (SPLIT, "GPU-aa", ["MIG-a1", "MIG-a2"]),
        (SPLIT, "GPU-aa,MIG-a1", ["MIG-a1", "MIG-a2"]),
        (SPLIT, "MIG-a2,GPU-bb", ["MIG-a2", "GPU-bb"]),
        (SPLIT, "MIG-a2", ["MIG-a2"]),
        (SPLIT, "MIG-a2,MIG-a2", NOTHING),
        ([], "1,GPU-zz", ["1", "GPU-zz"]),  # a driver that does not show its GPUs
        ([], "1,1", NOTHING),
        ([], "-1", NOTHING),
    ],
)
def test_slots_are_the_gpus_that_cuda_would_use(
    gpus: list[ListedGpu], variable: str | None, slots: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA_VISIBLE_DEVICES is read as CUDA reads it, and each slot has one name however it is told.

    Without a GPU the slots are places on the CPU.
    """
    monkeypatch.setattr(machine, "gpus_here", lambda: gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)

    here = Machine.here()

    assert list(here.gpus) == slots
    assert (here.num_slots == len(slots)) if slots else here.names[0] == "cpu-0"


@pytest.mark.parametrize(
    "text", ["0,-1,1", "-1", "0,0", "1x,2", "", "GPU-a,GPU-b", "GPU-a,GPU-a", "none", "2, 1,", "+1"]
)
def test_names_are_read_as_torch_reads_them(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch has the rules of CUDA, too, to count GPUs without CUDA."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)

    assert visible_gpus({"CUDA_VISIBLE_DEVICES": text}) == [str(each) for each in torch.cuda._parse_visible_devices()]


def test_an_attempt_sees_the_gpus_of_its_slots_only() -> None:
    """The variables of an attempt name the GPUs of its slots; one on places on the CPU sees no GPU."""
    gpus, places = Machine(2, ("GPU-aa", "GPU-bb")), Machine(2)

    assert gpus.slots([1]).variables == {"CUDA_VISIBLE_DEVICES": "GPU-bb"}
    assert (places.names, places.slots([1]).variables) == (["cpu-0", "cpu-1"], {"CUDA_VISIBLE_DEVICES": ""})
    assert gpus.usable([0]) == ["GPU-bb"]
