"""A master inside another program, for as long as a block lasts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from core_sdk._execution.experiments.reviving import dismiss_master
from core_sdk._execution.master._master import Master
from core_sdk._execution.master._server import Server
from core_sdk._home.folders import Home
from core_sdk._machine.slots import Machine
from core_sdk.errors import MasterRefusedError


@contextlib.contextmanager
def local_master(home: Home, num_slots: int | None = None) -> Iterator[None]:
    """Carries out the home's experiments in a thread of this process, and answers calls like any other master.

    If the home has a master already, that one carries them out. After the block, running trials go on, and the next
    master finds them. Raises `MasterRefusedError` if a master runs and `num_slots` are given.
    """
    try:
        master = Master(home, Machine.here(num_slots))
    except BlockingIOError as error:
        if num_slots is not None:
            problem = "it runs already, with slots of its own: leave out --slots, or end it with `core-sdk master down`"
            raise MasterRefusedError(problem) from error
        yield
        return
    dismiss_master(home.root)
    server = Server(home.root, master.answer)
    master.recover()
    thread = threading.Thread(target=master.run, name="core-sdk-master")
    thread.start()
    try:
        yield
    finally:
        server.close()
        master.stop()
        thread.join()
        master.close()
