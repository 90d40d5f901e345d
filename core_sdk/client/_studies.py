"""Studies from Python: the verbs of `core-sdk study`, `try`, `wait`, `board`, `keep`, `discard` and `code`.

What starts processes is imported by the methods, since reading does not need it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core_sdk._analysis.studies import Board, BoardLine, already_tried_text, board_text, read_board
from core_sdk._ground.environment import author as known_author
from core_sdk._home import Home, open_view
from core_sdk._home.finding.studies import FoundStudy, find_try, tries_to_await
from core_sdk.errors import AlreadyTriedError


class Study:
    """A study: tries of changed code, each trained with several seeds, and judged against their noise.

        study = client.begin_study("rates", "accuracy", smaller_is_better=False, command=["python", "train.py"])
        first = study.try_("as it is")
        study.wait(first)
        print(study)

    `print` shows the board, in at most 2 KB.
    """

    def __init__(self, home: Home, found: FoundStudy) -> None:
        self._home = home
        self._found = found
        self.name = found.name
        self.experiment_id = found.experiment_id

    def __repr__(self) -> str:
        return f"Study(name={self.name!r}, experiment_id={self.experiment_id})"

    def __str__(self) -> str:
        return board_text(self.board())

    def try_(
        self,
        hypothesis: str,
        *,
        directory: str | os.PathLike[str] | None = None,
        command: Sequence[str] = (),
        hparams: Mapping[str, Any] | None = None,
        parent: int | None = None,
        has_no_parent: bool = False,
        num_seeds: int | None = None,
        again: bool = False,
        stop_if_behind: bool = False,
        author: str = "",
    ) -> int:
        """Begins a try of the code of a directory as it is now, and returns its number; `wait` waits for it.

        The arguments are those of `core-sdk try`. The directory is by default the present one, and the author the one
        of `CORE_SDK_AUTHOR`, or else the user.

        Raises `AlreadyTriedError` if something like it was tried and `again` is not set, `CodeDirectoryError`,
        `CommandError`, `ExperimentError`, `TrialNotFoundError` for the parent, or `ValueError` without a command.
        """
        from core_sdk._execution import studies

        begun = studies.begin_try(
            self._home,
            self._found.experiment_id,
            self._found.record,
            studies.TryRequest(
                hypothesis=hypothesis,
                directory=Path.cwd() if directory is None else Path(directory),
                author=author or known_author(),
                command=command,
                hparams=hparams,
                parent=parent,
                has_no_parent=has_no_parent,
                num_seeds=num_seeds,
                is_again=again,
                is_stopped_if_behind=stop_if_behind,
            ),
        )
        if isinstance(begun, studies.AlreadyTried):
            told = already_tried_text(begun.likeness, begun.known, begun.tries)
            raise AlreadyTriedError(told, begun.known.try_id)
        return begun.try_id

    def wait(self, *try_ids: int, timeout_s: float | None = None, is_any_enough: bool = False) -> list[BoardLine]:
        """Blocks until tries have ended, and returns their lines of the board; without ids, for all that have not.

        With `is_any_enough` it returns after the first. After `timeout_s` it returns those that have ended by then.
        Raises `StudyNotFoundError` for a trial that is no try of the study.
        """
        from core_sdk._execution import studies

        wanted = tries_to_await(self._found.read(self._home), try_ids)
        timeout = math.inf if timeout_s is None else timeout_s
        over = list(studies.await_tries(self._home, wanted, timeout, is_any_enough=is_any_enough))
        lines = {line.try_id: line for line in self.board().tries}
        return [lines[try_id] for try_id in over]

    def board(self) -> Board:
        """Reads the board: what is best, and a line for each try. docs/board.md describes its fields."""
        from core_sdk._execution import studies

        studies.ensure_served(self._home)
        with open_view(self._home) as view:
            return read_board(self._home, view, self._found.experiment_id, self._found.record)

    def keep(self, try_id: int, why: str, *, branch: str = "") -> str:
        """Keeps a try: the next ones vary it. Returns what speaks against that; empty if nothing does.

        `branch` of the repository of the present directory moves on to the code of the try. Raises
        `StudyNotFoundError` or `CodeDirectoryError`.
        """
        from core_sdk._execution import studies

        return studies.keep(self._home, try_id, why, branch=branch).warning

    def discard(self, try_id: int, why: str, *, restore_in: str | os.PathLike[str] | None = None) -> str:
        """Discards a try. Returns what speaks against that; empty if nothing does.

        The directory `restore_in` gets the code of the parent back, unless it has changes that are in no try. Raises
        `StudyNotFoundError` or `CodeDirectoryError`.
        """
        from core_sdk._execution import studies

        directory = None if restore_in is None else Path(restore_in)
        return studies.discard(self._home, try_id, why, restore_in=directory).warning

    def code(self, try_id: int, *, diff: int | None = None) -> str:
        """Returns the difference of the code of a try to its parent's, or to that of the try `diff`.

        It is empty if there is none. Raises `StudyNotFoundError` or `CodeDamagedError`.
        """
        from core_sdk._execution import studies

        compared = studies.code_difference(self._home, find_try(self._home, try_id), diff)
        return "" if compared is None else "\n".join(compared[1])

    def check_out(self, try_id: int, directory: str | os.PathLike[str]) -> None:
        """Unpacks the code of a try into a new directory. Raises `CodeDamagedError` or `FileExistsError`."""
        from core_sdk._execution import studies

        studies.check_out(self._home, find_try(self._home, try_id).code, Path(directory))
