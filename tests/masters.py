"""A master in the process of the test, which takes no time to start."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.protocol import GetStatus, Want
from core_sdk._execution.master._master import Master
from core_sdk._execution.master._server import Server
from core_sdk._home import Home
from core_sdk._machine.slots import Machine


@contextlib.contextmanager
def running_master(home: Home, num_slots: int = 2) -> Iterator[None]:
    """Experiments that have not ended at the end of the block are killed."""
    master = Master(home, Machine(num_slots))
    thread = threading.Thread(target=master.run)
    thread.start()
    server = Server(home.root, master.answer)
    try:
        yield
        for experiment in call(home.root, GetStatus()).experiments:
            call(home.root, Want(experiment_id=experiment.experiment_id, state="KILLED"))
        while call(home.root, GetStatus()).experiments:
            pass
    finally:
        server.close()
        master.stop()
        thread.join()
        master.close()
