"""What the wheel holds, and what an import costs."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from frameworks.build_horovod import VERSION as HOROVOD
from frameworks.install import DEEPSPEED
from packaging.requirements import Requirement

import core_sdk
from core_sdk._ground.config.entrypoint import LAUNCHERS

ROOT = Path(__file__).resolve().parent.parent

# Third-party modules that `import core_sdk` may load: what a report needs, and no more. typing_extensions is msgspec's.
ALLOWED_MODULES = {"google_crc32c", "msgspec", "typing_extensions"}


def _constrained(name: str) -> str:
    """Returns the version in `constraints.txt`."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return next(line.partition("==")[2] for line in lines if line.startswith(f"{name}=="))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    directory = tmp_path_factory.mktemp("wheel")
    # Nothing is fetched: hatchling is one of the development dependencies.
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory], cwd=ROOT, check=True)
    (path,) = directory.glob("core_sdk-*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_both_packages_and_what_they_need(wheel: zipfile.ZipFile) -> None:
    """Type marks and the licence are not Python modules, and easily left behind."""
    names = wheel.namelist()

    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"core_sdk", "launch"}
    for name in (
        "core_sdk/py.typed",
        "launch/py.typed",
        "core_sdk/core/__init__.py",
        "core_sdk/_interfaces/cli/__init__.py",
    ):
        assert name in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_wheel_holds_the_whole_web_page(wheel: zipfile.ZipFile) -> None:
    """The wheel has all of the page's files except the types."""
    folder = ROOT / "core_sdk" / "_interfaces" / "server" / "page"
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".ts"]

    assert folder / "index.html" in files
    assert not [name for name in wheel.namelist() if name.endswith(".ts")]
    for path in files:
        assert wheel.read(path.relative_to(ROOT).as_posix()) == path.read_bytes()


def test_the_wheel_installs_the_commands(wheel: zipfile.ZipFile) -> None:
    """The wheel installs the command line and the launchers as console scripts."""
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))

    content = wheel.read(entry_points).decode()

    assert "core-sdk = core_sdk._interfaces.cli:main" in content
    for module in LAUNCHERS:
        assert f"core-sdk-{module.replace('_', '-')} = launch.{module}:main" in content


@pytest.mark.parametrize(
    ("name", "tested", "untested"),
    [
        ("deepspeed", DEEPSPEED.partition("==")[2], ["0.18.9", "0.20.0"]),
        ("horovod", HOROVOD, ["0.28.0", "0.29.0"]),
    ],
)
def test_only_versions_that_the_tests_run_on_are_claimed(name: str, tested: str, untested: list[str]) -> None:
    """Each optional dependency accepts exactly the versions that the tests install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    claimed = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    (requirement,) = (each for each in map(Requirement, claimed) if each.name == name)

    accepted = list(requirement.specifier.filter([tested, *untested]))

    assert accepted == [tested]


def test_torch_is_bounded_below_only() -> None:
    """`make test-versions` runs on the oldest that is accepted, and on the newest there is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (requirement,) = map(Requirement, project["optional-dependencies"]["torch"])

    accepted = list(requirement.specifier.filter(["2.5.1", "2.6.0", _constrained("torch"), "2.15.0", "3.0.0"]))

    assert accepted == ["2.6.0", _constrained("torch"), "2.15.0", "3.0.0"]
    assert f'"3.11/{accepted[0]}"' in (ROOT / ".ci" / "versions.py").read_text()


# What an import finds where torch is not installed.
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None\n"


@pytest.mark.parametrize(
    "statement",
    [
        "import core_sdk.pytorch",
        "import core_sdk.sgd",
        "from core_sdk.loop import State",
        "from core_sdk.train.torch import prepare_model",
    ],
)
def test_what_needs_torch_says_so(statement: str) -> None:
    """Without torch the error names what was asked for, and what to install."""
    finished = subprocess.run([sys.executable, "-c", WITHOUT_TORCH + statement], capture_output=True, text=True)

    assert finished.stderr.splitlines()[-1].endswith(' needs torch: pip install "torch>=2.6"')


def test_a_launch_begins_without_torch() -> None:
    """Importing a launcher does not import torch."""
    program = "import launch.torch_distributed, sys; print('torch' in sys.modules)"

    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "False"


SUBPACKAGES = [name for name in core_sdk.__all__ if inspect.ismodule(getattr(core_sdk, name)) and name != "errors"]


def test_each_subpackage_is_loaded_when_it_is_first_used() -> None:
    """`import core_sdk` makes all subpackages available and loads them on first use."""
    program = f"import core_sdk; print([getattr(core_sdk, name).__name__ for name in {SUBPACKAGES}])"

    loaded = subprocess.check_output([sys.executable, "-c", program], text=True)

    assert ast.literal_eval(loaded) == [f"core_sdk.{name}" for name in SUBPACKAGES]


@pytest.mark.parametrize("name", SUBPACKAGES)
def test_each_exported_name_is_there(name: str) -> None:
    """All names that a subpackage exports can be imported, also those that are loaded when they are first used."""
    package = importlib.import_module(f"core_sdk.{name}")

    assert [each for each in getattr(package, "__all__", ()) if getattr(package, each, None) is None] == []


@pytest.mark.parametrize("module", ["core_sdk", "core_sdk.core", "core_sdk.media"])
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


# Slow to import, and needed by a training that saves, is sent to a server or looks at others, or by its threads.
_LOADED_LATER = {
    "asyncio",
    "concurrent.futures",
    "core_sdk._home.index",
    "core_sdk._home.rows",
    "core_sdk._home.storage._download",
    "core_sdk._home.storage._shard",
    "core_sdk._home.storage.bucket",
    "core_sdk._machine",
    "core_sdk.core._checkpoint._save",
    "core_sdk.core._writer",
    "ctypes",
    "difflib",
    "importlib.metadata",
    "numpy",
    "pickle",
    "requests",
    "secrets",
    "torch",
}


def test_the_core_loads_what_only_some_trainings_need_when_they_need_it() -> None:
    """`from core_sdk import core` leaves out what a training that only reports does not use."""
    program = "from core_sdk import core; import sys; print(*sys.modules)"

    loaded = subprocess.check_output([sys.executable, "-c", program], text=True).split()

    assert _LOADED_LATER.intersection(loaded) == set()


def test_a_training_of_one_rank_loads_no_channel() -> None:
    """A training on one rank does not import the channel."""
    script = (
        "import sys; from core_sdk import core; core.DistributedContext(); "
        "sys.exit('core_sdk._distributed.calls._collectives' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
