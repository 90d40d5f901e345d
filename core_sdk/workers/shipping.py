"""Brings records from nodes that do not see the home of the program.

    with Shipping(workers, folder, attempt) as shipping:
        workers.run(train, home, shipping.spools)

In a worker `core_sdk.environment.use_home(home, spools.get(number of its node))` says where its records are kept.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from core_sdk.errors import NodeLostError
from core_sdk.tracking.home import Home, TrialFolder
from core_sdk.tracking.spool import node
from core_sdk.tracking.spool.shipment import Shipment
from core_sdk.workers._group import WorkerGroup

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("core_sdk.workers")

# How long the end waits for rank 0 to leave its script, and then for the last records.
_LEAVING_S = 5.0
_LAST_RECORDS_S = 60.0


class Shipping:
    """While it is open, copies the records of the ranks of one attempt from other nodes to the home.

    The end of the block waits for the last records, also of a worker that was killed, and logs if some are missing.
    These stay on their node, and are copied when workers of this home run there again.
    """

    def __init__(self, group: WorkerGroup, folder: TrialFolder, attempt: int) -> None:
        self.spools: dict[int, Path] = {}
        """For each node that does not see the home, by its number: the directory of its ranks' records."""
        self._group = group
        self._folder = folder
        self._attempt = attempt
        self._chief: Shipment | None = None
        """The shipment from rank 0's node, if that does not see the home."""
        self._others: list[Shipment] = []
        """The shipments from the other nodes with a spool, whose ranks record nothing."""
        self._resources = contextlib.ExitStack()
        self._is_closing = threading.Event()
        self._is_over = threading.Event()
        self._problem = ""

    def __enter__(self) -> Self:
        """Makes spools on the nodes that do not see the home, and begins to copy. Raises `NodeLostError`."""
        home = Home(self._folder.home_root.absolute())
        identity = home.identity()
        for place in self._group.places:
            call = _Beside(self._group, place.rank)
            if place.local_rank == 0 and not call(node.sees_home, home.root, identity):
                shipment = Shipment(call, self._folder, self._attempt)
                shipment.fit_out()
                self.spools[place.cross_rank] = shipment.root
                if place.rank == 0:
                    self._chief = shipment
                else:
                    self._others.append(shipment)
        if self._chief is not None:
            self._resources.enter_context(self._group.hold())
            self._thread = threading.Thread(target=self._run, args=[self._chief], name="core-sdk-shipping", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for shipment in self._others:
            with contextlib.suppress(NodeLostError):
                shipment.forget()
        if self._chief is None:
            return
        with self._resources:
            self._is_closing.set()
            self._thread.join(_LEAVING_S)
            self._is_over.set()
            self._thread.join(_LAST_RECORDS_S)
            if self._thread.is_alive():
                # The next attempt may bring what is left.
                self._chief.give_up()
                self._problem = f"they have not come within {_LAST_RECORDS_S:g} s"
            if problem := self._problem or self._chief.problem:
                self._say_what_is_missing(self._chief.root, problem)

    def _run(self, chief: Shipment) -> None:
        def is_running() -> bool:
            return not self._is_closing.is_set() or (not self._is_over.is_set() and chief.is_running())

        try:
            if chief.follow(is_running):
                if chief.is_running():
                    self._problem = "the script of rank 0 goes on."
                else:
                    chief.finish()
        except NodeLostError as error:
            self._problem = str(error)
        except Exception as error:  # in a thread nobody would hear of it: `__exit__` says what is missing
            logger.exception("records of trial %d cannot be brought home", self._folder.trial_id)
            self._problem = f"{error}."

    def _say_what_is_missing(self, spool: Path, problem: str) -> None:
        journal = self._folder.journal_path(self._attempt)
        size = journal.stat().st_size if journal.exists() else 0
        logger.error(
            "trial %d: what attempt %d has recorded after byte %d of %s may be missing: %s It is in %s of its node. It "
            "comes home when workers of this home are there again",
            self._folder.trial_id,
            self._attempt,
            size,
            journal,
            problem,
            spool,
        )


@dataclass(frozen=True)
class _Beside:
    """Calls functions on the node of a worker, beside it."""

    group: WorkerGroup
    rank: int

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.group.call_beside(self.rank, function, *args, **kwargs)
