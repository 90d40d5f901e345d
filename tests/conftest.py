"""What all tests share: a home of their own, scripts in processes of their own, and one Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import in_process
import parts
import pytest
from buckets.opening import servers_on_demand
from buckets.servers import BucketServer
from execution.workers.engines import dying_ray, programs, ray_address, two_ray_nodes, unwatched_ray
from interfaces.cli.commands import WarmCli
from kernels import kernel
from ports import reserved_port
from processes import Script
from second_tries import describe
from times import COLLECTED, Stopwatch, read_choice
from warm import warm_program

from core_sdk._home import Home
from core_sdk._interfaces import cli
from core_sdk._machine.processes import heed_signals

if TYPE_CHECKING:
    from playwright.sync_api import Playwright

__all__ = ["dying_ray", "kernel", "programs", "ray_address", "two_ray_nodes", "unwatched_ray"]

# On a busy machine the generation of inputs is slow, which says nothing about a test.
hypothesis.settings.register_profile("busy", suppress_health_check=[hypothesis.HealthCheck.too_slow], deadline=None)
hypothesis.settings.load_profile("busy")
# Of this process and all that it starts: six processes with a thread for each core would mostly wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# As Python did until 3.14: a loader's workers know classes that a test has defined, and start within milliseconds.
multiprocessing.set_start_method("fork")
CHOICE = read_choice()
"""The set of each test."""
# `make test &` in a script begins with SIGINT ignored, and so would all that the tests start and interrupt.
heed_signals()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--second-try", action="store_true", help="name the tests that pass: they failed beside others")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr != "gpu" and Path("/proc/driver/nvidia").exists():
        # All other tests mean the CPU, also those that let a Trainer choose.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if not hasattr(config, "workerinput"):  # a worker's reports reach the process that has started it
        config.pluginmanager.register(Stopwatch())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out the files without a quick test, whose imports take longer than the quick tests themselves."""
    if config.option.markexpr != "quick" or collection_path.suffix != ".py":
        return None
    return None if CHOICE.has_quick(collection_path.relative_to(Path(__file__).parent).as_posix()) else True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.config.getoption("--second-try"):
        passed = [report.nodeid for report in terminalreporter.getreports("passed") if report.when == "call"]
        for line in describe(passed):
            terminalreporter.write_line(line)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks each test with its set, of which the options of `make` choose, and begins with the longest."""
    items.sort(key=lambda item: (item.path.name != "test_docs.py", item.path.parent.name != "frameworks"))
    names = {item: item.nodeid.removeprefix("tests/") for item in items}
    config.stash[COLLECTED] = [*names.values()]
    for item, name in names.items():
        needed = parts.parts_of(item)
        chosen = CHOICE.set_of(name)
        if chosen == "slow":
            item.add_marker("slow")
        elif needed or chosen == "integrations":
            item.add_marker("integration")
        elif chosen == "quick":
            item.add_marker("quick")
        for part in needed & {"gpu", "ray"}:
            item.add_marker(part)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test, by name, whose part is missing."""
    parts.skip_without(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails a quick test that leaves its process."""
    if item.get_closest_marker("quick") is None:
        return (yield)
    with in_process.guard():
        return (yield)


@pytest.fixture(autouse=True)
def scratch_environment(tmp_path: Path) -> Iterator[None]:
    """No test sees the user's home and slots, the run or job that the suite may be part of, or what others left."""
    before = dict(os.environ)
    for name in before:
        if name.startswith(("CORE_SDK_", "SLURM_")):
            del os.environ[name]
    os.environ["CORE_SDK_HOME"] = str(tmp_path / "home")
    os.environ["CORE_SDK_SLOTS"] = str(tmp_path / "slots")
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def start_server() -> Iterator[Callable[[str], BucketServer]]:
    """Gives the server of objects that has this name, of `STARTERS`; it runs to the end of all tests."""
    with servers_on_demand() as start:
        yield start


@pytest.fixture(scope="session")
def warm_cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmCli]:
    """Runs commands of `core-sdk` without the time that their imports take."""
    commands = [
        name
        for _, name, _ in pkgutil.walk_packages(cli.__path__, "core_sdk._interfaces.cli.")
        if "__main__" not in name
    ]
    others = [
        "core_sdk.client",
        "core_sdk._home.storage.directory",
        "core_sdk._home.index",
        "rich.table",
    ]
    with warm_program("core_sdk._interfaces.cli:main", *commands, *others) as program:
        yield WarmCli(program, tmp_path_factory.mktemp("cli"))


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    """The driver of browsers, of which a process can have only one."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        yield driver


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port at which nothing listens; nobody else gets it during the test."""
    with reserved_port() as port:
        yield port


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """The home that scripts of this test record in; made by the first of them."""
    return Home(tmp_path / "home")


@pytest.fixture
def start_script(tmp_path: Path) -> Iterator[Callable[..., Script]]:
    """Starts a script given by its source; it is killed at the end of the test if it still runs."""
    started: list[Script] = []

    def start(source: str, *arguments: str, name: str = "train.py", **variables: str) -> Script:
        path = tmp_path / name
        path.write_text(textwrap.dedent(source))
        process = subprocess.Popen(
            [sys.executable, "-u", str(path), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"CORE_SDK_QUIET": "1"} | variables,  # tests compare the whole of what is said
            cwd=tmp_path,
        )
        started.append(Script(process))
        return started[-1]

    yield start
    for script in started:
        if script.process.poll() is None:
            script.process.kill()
        script.process.communicate()


@pytest.fixture
def run_script(start_script: Callable[..., Script]) -> Callable[..., tuple[int, str, str]]:
    """Runs a script to its end: exit status, stdout, stderr."""
    return lambda source, *arguments, **keywords: start_script(source, *arguments, **keywords).wait()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    mount_point = tmp_path / "small"
    mount_point.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount_point)], capture_output=True, text=True
        )
    except FileNotFoundError:
        pytest.skip("NOT TESTED: full disks; there is no mount command here")
    if mounted.returncode != 0:
        pytest.skip(f"NOT TESTED: full disks; mounting is not permitted here: {mounted.stderr.strip()}")
    yield mount_point
    subprocess.run(["umount", "--lazy", str(mount_point)], check=True)
