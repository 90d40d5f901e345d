"""Brings records from nodes that do not see the home of the program.

    with Shipping(workers, folder, attempt) as shipping:
        workers.run(train, home, shipping.spools)

In a worker `core_sdk._ground.environment.use_home(home, spools.get(number of its node))` says where its records are
kept.
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

from core_sdk._execution.workers._group import WorkerGroup
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.spool import node
from core_sdk._home.spool.shipment import Shipment
from core_sdk.errors import NodeLostError

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
        """The directory of the ranks' records on each node that does not see the home, by the node's number."""
        self._group = group
        self._folder = folder
        self._attempt = attempt
        self._nodes: list[_Node] = []
        """The nodes that do not see the home. Rank 0's node comes first, if it is one of them."""
        self._holding = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Makes spools on the nodes that do not see the home, and begins to copy. Raises `NodeLostError`."""
        home = Home(self._folder.home_root.absolute())
        identity = home.identity()
        for place in self._group.places:
            call = _WorkerNodeCalls(self._group, place.rank)
            if place.local_rank == 0 and not call(node.sees_home, home.root, identity):
                shipment = Shipment(call, self._folder, self._attempt)
                shipment.fit_out()
                self.spools[place.cross_rank] = shipment.root
                self._nodes.append(_Node(shipment, self._folder, self._attempt, has_chief=place.rank == 0))
        if self._nodes:
            self._holding.enter_context(self._group.hold())
        for each in self._nodes:
            each.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._holding:
            for each in self._nodes:
                each.close(has_failed=error is not None)


class _Node:
    """Copies what the ranks of one node record, in a thread."""

    def __init__(self, shipment: Shipment, folder: TrialFolder, attempt: int, *, has_chief: bool) -> None:
        self._shipment = shipment
        self._folder = folder
        self._attempt = attempt
        self._has_chief = has_chief
        self._has_failed = False
        self._is_closing = threading.Event()
        self._is_over = threading.Event()
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name="core-sdk-shipping", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, *, has_failed: bool) -> None:
        """Waits for the last records, and logs if some are missing. `has_failed`: some ranks may still be running."""
        self._has_failed = has_failed
        self._is_closing.set()
        self._thread.join(_LEAVING_S)
        self._is_over.set()
        self._thread.join(_LAST_RECORDS_S)
        if self._thread.is_alive():
            # The next attempt may bring what is left.
            self._shipment.give_up()
            self._problem = f"they have not come within {_LAST_RECORDS_S:g} s."
        if problem := self._problem or self._shipment.problem:
            self._say_what_is_missing(problem)

    def _run(self) -> None:
        try:
            if self._shipment.follow(self._may_record):
                self._leave()
        except NodeLostError as error:
            self._problem = str(error)
        except Exception as error:  # in a thread nobody would hear of it: `close` says what is missing
            logger.exception("records of trial %d cannot be brought home", self._folder.trial_id)
            self._problem = f"{error}."

    def _may_record(self) -> bool:
        if not self._is_closing.is_set():
            return True
        return self._has_chief and not self._is_over.is_set() and self._shipment.is_running()

    def _leave(self) -> None:
        if not self._has_chief:
            # The last reports of a rank that ends only now come home with what the next attempt finds there.
            if not self._has_failed:
                self._shipment.forget()
        elif self._shipment.is_running():
            self._problem = "the script of rank 0 goes on."
        else:
            self._shipment.finish()

    def _say_what_is_missing(self, problem: str) -> None:
        if self._has_chief:
            journal = self._folder.journal_path(self._attempt)
            size = journal.stat().st_size if journal.exists() else 0
            missing = f"records of attempt {self._attempt} after byte {size} of {journal}"
        else:
            missing = f"reports of ranks other than 0 in attempt {self._attempt}"
        logger.error(
            "trial %d: %s may be missing: %s They are in %s of their node, and come home when workers of this home are "
            "there again",
            self._folder.trial_id,
            missing,
            problem,
            self._shipment.root,
        )


@dataclass(frozen=True)
class _WorkerNodeCalls:
    """Calls functions on the node of a worker, in another process."""

    group: WorkerGroup
    rank: int

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.group.call_beside(self.rank, function, *args, **kwargs)
