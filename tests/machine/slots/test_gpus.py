"""The names of GPUs, from what NVIDIA's driver shows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from core_sdk._machine.slots import Machine
from core_sdk._machine.slots._gpus import full_names, gpus_here
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
    assert gpus_here(driver, driver.parent) == ["GPU-aa", "GPU-bb"]

    (driver.parent / "nvidia1").unlink()

    assert gpus_here(driver, driver.parent) == ["GPU-bb"]
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

    assert gpus_here(driver, driver.parent) == ["MIG-a1", "MIG-a2", "GPU-bb"]

    (driver.parent / "bin" / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    with pytest.raises(SlotError, match=r"only `nvidia-smi -L` tells.*exit status 9.*CUDA_VISIBLE_DEVICES"):
        gpus_here(driver, driver.parent)


@pytest.mark.parametrize(
    ("named", "full"),
    [
        (["1"], ["GPU-bb"]),
        (["GPU-b", "0"], ["GPU-bb", "GPU-aa"]),
        (["7"], ["7"]),
        (["MIG-c1", "GPU-zz"], ["MIG-c1", "GPU-zz"]),
        ([], []),
    ],
)
def test_a_gpu_has_one_name_however_it_is_told(named: list[str], full: list[str]) -> None:
    """An index and the beginning of a UUID mean the UUID, so that all users name a GPU alike."""
    assert full_names(named, lambda: ["GPU-aa", "GPU-bb"]) == full


def test_an_attempt_sees_the_gpus_of_its_slots_only() -> None:
    """The variables of an attempt name the GPUs of its slots; one on places on the CPU sees no GPU."""
    gpus, places = Machine(2, ("GPU-aa", "GPU-bb")), Machine(2)

    assert gpus.slots([1]).variables == {"CUDA_VISIBLE_DEVICES": "GPU-bb"}
    assert (places.names, places.slots([1]).variables) == (["cpu-0", "cpu-1"], {"CUDA_VISIBLE_DEVICES": ""})
    assert gpus.usable([0]) == ["GPU-bb"]
