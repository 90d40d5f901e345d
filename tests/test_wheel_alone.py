"""The wheel, installed alone into an empty environment: what works there without torch."""

from __future__ import annotations

import filecmp
import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from parts import needs

from core_sdk._ground.version import __version__

ROOT = Path(__file__).resolve().parent.parent
LARGEST_INSTALL_BYTES = 250_000_000

pytestmark = pytest.mark.timeout(600)


class Installed:
    """An environment that has the wheel and what it depends on, and nothing else."""

    def __init__(self, directory: Path) -> None:
        self.environment = directory / "environment"
        self._directory = directory
        self._variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            "CORE_SDK_HOME": str(directory / "home"),
            "PATH": f"{self.environment / 'bin'}:{os.environ['PATH']}",
        }
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory], cwd=ROOT, check=True
        )
        (wheel,) = directory.glob("*.whl")
        venv.create(self.environment, with_pip=True)
        self.run("pip", "install", "--quiet", "--no-compile", str(wheel), "-c", str(ROOT / "constraints.txt"))

    def run(self, *command: str, succeeds: bool = True) -> subprocess.CompletedProcess[str]:
        finished = subprocess.run(
            command, cwd=self._directory, env=self._variables, capture_output=True, text=True, timeout=500
        )
        assert (finished.returncode == 0) == succeeds, finished.stderr
        return finished

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self._directory,
            env=self._variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"))


def test_the_wheel_alone_is_small_and_has_no_torch(installed: Installed) -> None:
    """An install for those who read brings no torch and no CUDA, and stays below 250 MB with pip itself."""
    packages = installed.run("pip", "list", "--format=freeze").stdout

    size_bytes = sum(file.lstat().st_size for file in installed.environment.rglob("*") if file.is_file())
    assert not re.search("^(torch|nvidia|numpy)", packages, re.MULTILINE)
    assert size_bytes <= LARGEST_INSTALL_BYTES


def test_the_readmes_first_script_runs_and_is_shown(installed: Installed, tmp_path: Path) -> None:
    """The README's five lines record a trial without torch; commands and the page show it."""
    (script,) = re.findall(r"^# train\.py\n.*?(?=^```)", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[:1]
    (tmp_path / "train.py").write_text(script)

    installed.run("python", str(tmp_path / "train.py"))

    assert re.search(r"1 +first-steps +COMPLETED +100", installed.run("core-sdk", "trial", "list").stdout)
    with installed.start("core-sdk", "ui", "--no-browser", "--until-eof") as page:
        assert page.stdout is not None
        url = urlsplit(page.stdout.readline().strip())
        # Browsers know each name under `localhost`; the resolver of a system may not.
        shown = requests.get(f"http://127.0.0.1:{url.port}/", headers={"Host": url.netloc}, timeout=60)
        assert "<title>" in shown.text
        page.communicate()


def test_what_needs_torch_says_what_to_install(installed: Installed, tmp_path: Path) -> None:
    """The launcher and the Trainer name the extra that brings torch."""
    (tmp_path / "train.py").write_text("pass\n")
    launch = ["python", "-m", "launch.torch_distributed", "--nproc-per-node=2", str(tmp_path / "train.py")]

    launched = installed.run(*launch, succeeds=False)
    imported = installed.run("python", "-c", "import core_sdk.pytorch", succeeds=False)

    assert 'pip install "torch>=2.6"' in launched.stderr
    assert launched.stderr.count("\n") == 1
    assert 'core_sdk.pytorch needs torch: pip install "torch>=2.6"' in imported.stderr


def build(directory: Path) -> Path:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", directory], cwd=ROOT, check=True)
    return directory


def test_two_builds_have_the_same_bytes(tmp_path: Path) -> None:
    """Whoever builds a release again gets its wheel and its source distribution, byte for byte."""
    built, again = build(tmp_path / "built"), build(tmp_path / "again")

    names = sorted(file.name for file in built.iterdir())
    assert [name.rpartition("-")[2] for name in names] == ["any.whl", f"{__version__}.tar.gz"]
    assert filecmp.cmpfiles(built, again, names, shallow=False) == (names, [], [])


@needs("release")
def test_the_registry_would_take_the_wheel_and_the_sources(tmp_path: Path) -> None:
    """`twine check` finds nothing in what is uploaded."""
    files = list(build(tmp_path).iterdir())

    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True
    )

    assert (checked.returncode, checked.stdout.count("PASSED")) == (0, 2), checked.stdout


@needs("release")
def test_the_bill_of_materials_names_what_an_install_brings(installed: Installed, tmp_path: Path) -> None:
    """The bill names each package of the environment with its version, and Core SDK as what it is the bill of."""
    packages = dict(line.split("==") for line in installed.run("pip", "list", "--format=freeze").stdout.split())
    python, bill = installed.environment / "bin" / "python", tmp_path / "bill.json"

    subprocess.run([*bill_of_materials(python), "-o", bill], cwd=ROOT, check=True)

    told = json.loads(bill.read_text())
    assert told["metadata"]["component"]["name"] == "core-sdk"
    assert {one["name"]: one["version"] for one in told["components"]}.items() >= {
        (name, packages[name]) for name in ("requests", "msgspec", "google-cloud-storage")
    }


def bill_of_materials(python: Path) -> list[str]:
    """Returns the command of the Makefile's target `dist`."""
    (words,) = re.findall(r"cyclonedx_py (.*?) -o", (ROOT / "Makefile").read_text())
    return [sys.executable, "-m", "cyclonedx_py", *words.replace("$(ALONE)/bin/python", str(python)).split()]
