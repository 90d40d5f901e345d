"""What the launcher's tests share: scripts launched on several ranks, in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from launches import Ended, Launch, RunLaunch, StartLaunch, WarmLaunchers, kill_all_in, launchers


@pytest.fixture(scope="session")
def warm_launchers() -> Iterator[WarmLaunchers]:
    with launchers() as warm:
        yield warm


@pytest.fixture
def launch_directory(tmp_path: Path) -> Iterator[Path]:
    """The directory of this test's launches; processes that are left in it are killed at the end."""
    directory = tmp_path / "launch"
    directory.mkdir()
    yield directory
    kill_all_in(directory)


@pytest.fixture
def start_launch(launch_directory: Path, warm_launchers: WarmLaunchers) -> StartLaunch:
    """Returns a function that launches a script given by its source."""

    def start(source: str, *arguments: str, num_ranks: int = 2, overrides: Sequence[str] = ()) -> Launch:
        return warm_launchers.start(launch_directory, source, arguments, num_ranks, overrides)

    return start


@pytest.fixture
def run_launch(start_launch: StartLaunch) -> RunLaunch:
    """Returns a function that launches a script and waits for the launcher's end."""

    def run(source: str, *arguments: str, num_ranks: int = 2, overrides: Sequence[str] = ()) -> Ended:
        return start_launch(source, *arguments, num_ranks=num_ranks, overrides=overrides).wait()

    return run
