"""A home with a master, which runs in this process and ends with the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from core_sdk.experiments.calling import call
from core_sdk.master._master import Master
from core_sdk.master._server import Server
from core_sdk.master.machine import Machine
from core_sdk.tracking import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.create(tmp_path / "home")


@pytest.fixture
def master(home: Home) -> Iterator[Master]:
    """It has two slots. Experiments that have not ended at the end of the test are killed."""
    master = Master(home, Machine(2))
    thread = threading.Thread(target=master.run)
    thread.start()
    server = Server(home.root, master.answer)
    try:
        yield master
        for experiment in call(home.root, "status")["experiments"]:
            call(home.root, "want", experiment_id=experiment["experiment_id"], state="KILLED")
        while call(home.root, "status")["experiments"]:
            pass
    finally:
        master.stop()
        thread.join()
        server.close()
        master.close()
