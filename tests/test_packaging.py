"""What the wheel holds, and what an import costs."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Third-party modules that `import core_sdk` may load: what a report needs, and no more. typing_extensions is msgspec's.
ALLOWED_MODULES = {"google_crc32c", "msgspec", "typing_extensions", "xxhash"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    directory = tmp_path_factory.mktemp("wheel")
    # Without isolation, so that nothing is fetched: hatchling is one of the development dependencies.
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(directory), str(ROOT)], check=True)
    (path,) = directory.glob("core_sdk-*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_both_packages_and_what_they_need(wheel: zipfile.ZipFile) -> None:
    """Type marks and the licence are not Python modules, and easily left behind."""
    names = wheel.namelist()

    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"core_sdk", "launch"}
    for name in ("core_sdk/py.typed", "launch/py.typed", "core_sdk/core/__init__.py", "core_sdk/cli/__init__.py"):
        assert name in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_wheel_installs_the_commands(wheel: zipfile.ZipFile) -> None:
    """The command line and the launchers are console scripts of the wheel."""
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))

    content = wheel.read(entry_points).decode()

    assert "core-sdk = core_sdk.cli:main" in content
    for module in ("torch_distributed", "deepspeed", "horovod", "tensorflow", "wrap_rank"):
        assert f"core-sdk-{module.replace('_', '-')} = launch.{module}:main" in content


@pytest.mark.parametrize("module", ["core_sdk", "core_sdk.core"])
def test_importing_loads_only_what_a_report_needs(module: str) -> None:
    """A training script pays for no cloud, database, server or plot that it does not use."""
    program = f"""
import json, sys
before = set(sys.modules)
import {module}
after = {{name.split(".")[0] for name in set(sys.modules) - before}}
print(json.dumps(sorted(after - sys.stdlib_module_names)))
"""

    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout

    assert set(json.loads(output)) - {"core_sdk"} <= ALLOWED_MODULES


def test_a_training_of_one_rank_loads_no_channel() -> None:
    """Sockets and codes are imported by those that have somebody to speak to."""
    script = (
        "import sys; from core_sdk import core; core.DistributedContext(); "
        "sys.exit('core_sdk.distributed.calls._collectives' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
